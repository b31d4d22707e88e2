// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"image/color"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/mpcc/mpcc/internal/experiment/judge"
	"github.com/mpcc/mpcc/internal/experiment/result"
)

// What the forest plot is made of, in px, and the ends of its axis.
const (
	forestWidth   = 1000
	forestRow     = 19
	forestLeft    = 470 // where the axis begins
	forestRight   = 870 // where it ends, and the verdicts begin
	forestTop     = 74  // of the first row: the legend and the axis are above
	forestLow     = 0.2
	forestHigh    = 5.0
	forestClaimed = 74 // letters of a claim
)

var forestTicks = []float64{0.25, 0.5, 1, 2, 4}

// verdictHues has a hue for each verdict.
var verdictHues = map[string]int{judge.Reproduced: 2, judge.Contradicted: 1, judge.NoEffect: 3, judge.Inconclusive: 4, judge.NotTestable: 7}

// forestLine is one row: the name of an experiment, or a claim at a point.
type forestLine struct {
	title   string // of an experiment
	claim   string
	verdict Verdict
	check   *Check // nil: not measured
}

// Forest returns an SVG of all claims: what was measured, with its interval, the bound and the published value. What was
// simulated has a title of its own.
func Forest(experiments []Experiment) ([]byte, error) {
	var lines []forestLine
	var words strings.Builder
	for i := range experiments {
		e := &experiments[i]
		title := e.Scenario.Name
		if e.Simulated() {
			title += ", simulated"
		}
		lines = append(lines, forestLine{title: title})
		fmt.Fprintf(&words, "%s: ", title)
		for _, v := range e.Claims {
			rows := v.lines()
			for _, l := range rows {
				fmt.Fprintf(&words, "%s: %s", l.claim, l.outcome())
				if l.check != nil {
					fmt.Fprintf(&words, ", %s", l.check.Ours)
				}
				words.WriteString(". ")
			}
			lines = append(lines, rows...)
		}
	}
	height := forestTop + forestRow*len(lines) + 12
	canvas := vgsvg.NewWith(vgsvg.UseWH(forestWidth, vg.Length(height)))
	f := forest{Canvas: draw.New(canvas), height: vg.Length(height)}
	f.SetColor(paper.color())
	f.Fill(f.Rectangle.Path())
	f.frame(len(lines))
	for i, l := range lines {
		f.line(l, f.y(i))
	}
	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	return finish(out.String(), darkStyle(), "All claims", strings.TrimSpace(words.String()), forestWidth, height)
}

// lines returns a row for each check; one alone if there are none.
func (v *Verdict) lines() []forestLine {
	if len(v.Checks) == 0 {
		return []forestLine{{claim: v.Text, verdict: *v}}
	}
	var lines []forestLine
	for i := range v.Checks {
		text := v.Text
		if len(v.Checks) > 1 {
			rest := maps.Clone(v.Checks[i].Point)
			maps.DeleteFunc(rest, func(axis, value string) bool {
				return !slices.ContainsFunc(v.Checks, func(c Check) bool { return c.Point[axis] != value })
			})
			text += ": " + pointText(rest)
		}
		lines = append(lines, forestLine{claim: text, verdict: *v, check: &v.Checks[i]})
	}
	return lines
}

func (l forestLine) outcome() string {
	switch {
	case l.check != nil:
		return l.check.Outcome
	case l.verdict.Outcome == judge.NotTestable:
		return l.verdict.Outcome
	}
	return "not measured"
}

type forest struct {
	draw.Canvas
	height vg.Length
}

// y returns the middle of a row.
func (f forest) y(row int) vg.Length {
	return f.height - forestTop - forestRow*(vg.Length(row)+.5)
}

// x returns the place of a value, at most at the ends of the axis.
func (f forest) x(value float64) vg.Length {
	if value <= forestLow {
		return forestLeft
	}
	at := math.Log(min(value, forestHigh)/forestLow) / math.Log(forestHigh/forestLow)
	return forestLeft + vg.Length(at)*(forestRight-forestLeft)
}

// frame draws the legend, the axis and what it is of.
func (f forest) frame(rows int) {
	style := wordsOf(12)
	x, top := vg.Length(10), f.height-18
	entry := func(name string, mark func(at vg.Point)) {
		mark(vg.Point{X: x + 8, Y: top + 4})
		f.FillText(style, vg.Point{X: x + 22, Y: top}, name)
		x += 22 + style.Width(name) + 18
	}
	for _, v := range judge.Verdicts {
		entry(v, func(at vg.Point) { f.DrawGlyph(verdictGlyph(v), at) })
	}
	entry("published", f.published)
	entry("bound", func(at vg.Point) { f.bound(at, result.Above) })
	entry("margin", func(at vg.Point) { f.margin(at.X-8, at.X+8, at.Y) })
	f.FillText(style, vg.Point{X: forestLeft, Y: f.height - 44}, "ratio, or value by its bound; 95 % interval")
	bottom := f.y(rows-1) - forestRow/2
	for _, v := range forestTicks {
		line := draw.LineStyle{Color: faint.color(), Width: 1}
		if v == 1 {
			line.Color = ink.color()
		}
		f.StrokeLine2(line, f.x(v), bottom, f.x(v), f.height-forestTop+4)
		label := style
		label.XAlign = draw.XCenter
		f.FillText(label, vg.Point{X: f.x(v), Y: f.height - forestTop + 10}, strconv.FormatFloat(v, 'g', -1, 64))
	}
}

func (f forest) line(l forestLine, y vg.Length) {
	style := wordsOf(12)
	style.YAlign = draw.YCenter
	if l.title != "" {
		style.Font.Size = 13
		f.FillText(style, vg.Point{X: 10, Y: y + 2}, l.title)
		f.StrokeLine2(draw.LineStyle{Color: faint.color(), Width: 1}, 10, y-forestRow/2, forestWidth-10, y-forestRow/2)
		return
	}
	f.FillText(style, vg.Point{X: 24, Y: y}, shortened(l.claim))
	f.FillText(coloured(style, l.outcome()), vg.Point{X: forestRight + 14, Y: y}, l.outcome())
	v, unit := l.verdict, 1.0 // what values are divided by
	if v.To == nil && v.Bound != 0 {
		unit = v.Bound
	}
	if v.Relation == result.Within {
		f.margin(f.x((v.Bound-v.Margin)/unit), f.x((v.Bound+v.Margin)/unit), y)
	} else {
		f.bound(vg.Point{X: f.x(v.Bound / unit), Y: y}, v.Relation)
	}
	if l.check != nil {
		f.ours(l.check, unit, y)
	}
	if v.Published != nil {
		f.published(vg.Point{X: f.x(*v.Published / unit), Y: y})
	}
}

// ours draws the mean with its interval, and an arrow where that goes on beyond the axis.
func (f forest) ours(c *Check, unit float64, y vg.Length) {
	glyph := verdictGlyph(c.Outcome)
	line := draw.LineStyle{Color: glyph.Color, Width: 1.6}
	if c.Ours.Low != nil {
		low, high := *c.Ours.Low/unit, *c.Ours.High/unit
		f.StrokeLine2(line, f.x(low), y, f.x(high), y)
		for _, end := range []struct {
			value  float64
			beyond bool
			inward vg.Length
		}{{low, low < forestLow, 5}, {high, high > forestHigh, -5}} {
			at := f.x(end.value)
			if end.beyond {
				f.StrokeLines(line, []vg.Point{{X: at + end.inward, Y: y + 4}, {X: at, Y: y}, {X: at + end.inward, Y: y - 4}})
			} else {
				f.StrokeLine2(line, at, y-4, at, y+4)
			}
		}
	}
	f.DrawGlyph(glyph, vg.Point{X: f.x(c.Ours.Mean / unit), Y: y})
}

// bound draws a stroke with an arrow to the side on which the claim holds.
func (f forest) bound(at vg.Point, relation string) {
	line, side := draw.LineStyle{Color: ink.color(), Width: 1.2}, vg.Length(6)
	if relation == result.Below {
		side = -6
	}
	f.StrokeLine2(line, at.X, at.Y-6, at.X, at.Y+6)
	f.StrokeLine2(line, at.X, at.Y+6, at.X+side, at.Y+6)
}

func (f forest) margin(low, high, y vg.Length) {
	f.StrokeLines(draw.LineStyle{Color: ink.color(), Width: 1.2},
		[]vg.Point{{X: low + 3, Y: y + 7}, {X: low, Y: y + 7}, {X: low, Y: y - 7}, {X: low + 3, Y: y - 7}},
		[]vg.Point{{X: high - 3, Y: y + 7}, {X: high, Y: y + 7}, {X: high, Y: y - 7}, {X: high - 3, Y: y - 7}})
}

func (f forest) published(at vg.Point) {
	f.DrawGlyph(draw.GlyphStyle{Color: ink.color(), Radius: 5, Shape: draw.RingGlyph{}}, at)
}

// verdictGlyph tells verdicts apart also without colour.
func verdictGlyph(verdict string) draw.GlyphStyle {
	i, known := verdictHues[verdict]
	if !known {
		i = verdictHues[judge.NotTestable]
	}
	m := mark{Series: Series{Hue: i}}
	g := m.glyph()
	g.Radius = 4
	return g
}

func coloured(style text.Style, verdict string) text.Style {
	if i, known := verdictHues[verdict]; known {
		style.Color = color.Color(hue(i))
	}
	return style
}

// shortened returns as much of a claim as fits.
func shortened(claim string) string {
	letters := []rune(claim)
	if len(letters) <= forestClaimed {
		return claim
	}
	return strings.TrimSpace(string(letters[:forestClaimed-1])) + "…"
}
