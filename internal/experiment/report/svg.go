// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"fmt"
	"html"
	"image/color"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/mpcc/mpcc/internal/experiment/result"
)

const (
	plotWidth  = 680 // px
	plotHeight = 380
)

// A tone is a colour as it is on a light and on a dark page.
type tone struct{ light, dark uint32 }

var (
	paper = tone{0xffffff, 0x15181c}
	ink   = tone{0x1b1f24, 0xe8eaed}
	faint = tone{0xd9dce0, 0x3a3f46}
	// Hues that people with any colour vision tell apart (after Okabe and Ito), darkened or lightened to
	// show on the page.
	hues = []tone{
		{0x0072b2, 0x56aee6}, {0xd55e00, 0xff8f3f}, {0x008a65, 0x2fc99b}, {0xb5538c, 0xe79ac4},
		{0x8a6d00, 0xe6c229}, {0x3d3d8f, 0xa5a5f2}, {0x2a93c9, 0x9fd8f5}, {0x6e6e6e, 0xb0b0b0},
	}
)

func (t tone) color() color.Color {
	return color.RGBA{uint8(t.light >> 16), uint8(t.light >> 8), uint8(t.light), 255}
}

func hue(i int) color.Color { return hues[i%len(hues)].color() }

// darkRules returns CSS that replaces the light colours, which the canvas writes into style attributes, by the
// dark ones.
func darkRules() string {
	var css strings.Builder
	for _, t := range append([]tone{paper, ink, faint}, hues...) {
		for _, property := range []string{"fill", "stroke"} {
			fmt.Fprintf(&css, "svg [style*=\"%[1]s:#%06[2]X\"]{%[1]s:#%06[3]x!important}\n", property, t.light, t.dark)
		}
	}
	return css.String()
}

// darkStyle returns darkRules for a file of its own.
func darkStyle() string {
	return "<style>@media (prefers-color-scheme: dark) {\n" + darkRules() + "}</style>\n"
}

// SVG returns the plot as a file of its own, for light and dark pages.
func (p *Plot) SVG() ([]byte, error) {
	return p.svg(darkStyle())
}

func (p *Plot) svg(style string) ([]byte, error) {
	words := wordsOf(12)
	drawing := p.axes(words)
	slots := p.slots()
	for _, s := range p.Series {
		drawing.Add(&mark{Series: s, kind: p.Kind, slots: slots, slot: p.slot(s)})
	}
	p.fit(drawing)

	canvas := vgsvg.NewWith(vgsvg.UseWH(plotWidth, plotHeight))
	area := draw.New(canvas)
	area.SetColor(paper.color())
	area.Fill(area.Rectangle.Path())
	area = draw.Crop(area, 10, -16, 8, -10)
	area.Max.Y = p.legend(area, words)
	drawing.Draw(area)

	var out bytes.Buffer
	if _, err := canvas.WriteTo(&out); err != nil {
		return nil, err
	}
	return finish(out.String(), style, p.Title, p.describe(), plotWidth, plotHeight)
}

// wordsOf returns the style of text of a size.
func wordsOf(size vg.Length) text.Style {
	return text.Style{Color: ink.color(), Font: font.From(font.Font{Typeface: "Liberation", Variant: "Sans"}, size), Handler: plot.DefaultTextHandler}
}

// axes returns a drawing that has axes and grid only.
func (p *Plot) axes(words text.Style) *plot.Plot {
	drawing := plot.New()
	drawing.BackgroundColor = nil
	for _, s := range []*text.Style{
		&drawing.X.Label.TextStyle, &drawing.Y.Label.TextStyle, &drawing.X.Tick.Label, &drawing.Y.Tick.Label,
	} {
		s.Color, s.Font = words.Color, words.Font
	}
	for _, axis := range []*plot.Axis{&drawing.X, &drawing.Y} {
		axis.Color, axis.Tick.Color = ink.color(), ink.color()
		axis.Padding = 0
		axis.Label.Padding = 4
		axis.Tick.Marker = plot.TickerFunc(roundTicks)
	}
	drawing.X.Label.Text, drawing.Y.Label.Text = p.X, p.Y
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal.Color = faint.color()
	drawing.Add(grid)
	return drawing
}

// fit sets the ends of the axes and the ticks along x. All series have to be there.
func (p *Plot) fit(drawing *plot.Plot) {
	if p.Kind != result.Box {
		drawing.Y.Min = 0
	}
	room := .04 * (drawing.Y.Max - drawing.Y.Min)
	drawing.Y.Min, drawing.Y.Max = max(0, drawing.Y.Min-room), drawing.Y.Max+room
	if drawing.Y.Max <= drawing.Y.Min {
		drawing.Y.Max = drawing.Y.Min + 1
	}
	switch {
	case p.Names != nil:
		p.nameTicks(drawing)
	case p.Kind == result.Traces:
		drawing.X.Min = min(0, drawing.X.Min)
	case p.Kind == result.CDF:
		if drawing.X.Max <= drawing.X.Min { // all repeats alike
			drawing.X.Max = drawing.X.Min + 1
		}
	default:
		pad := .03 * (drawing.X.Max - drawing.X.Min)
		drawing.X.Min, drawing.X.Max = drawing.X.Min-pad, drawing.X.Max+pad
		drawing.X.Tick.Marker = p.xTicks()
	}
}

// finish adds a title, a description for those who cannot see the picture, the style, and fonts for where there is
// no Liberation.
func finish(svg, style, title, description string, width, height int) ([]byte, error) {
	_, body, found := strings.Cut(svg, "<svg ")
	_, body, closed := strings.Cut(body, ">")
	if !found || !closed {
		return nil, fmt.Errorf("plot %q: not drawn as SVG", title)
	}
	body = strings.ReplaceAll(body, "font-family:Liberation Sans", "font-family:Liberation Sans,Arial,Helvetica,sans-serif")
	var out bytes.Buffer
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]d" height="%[2]d" viewBox="0 0 %[1]d %[2]d" role="img">
<title>%[3]s</title>
<desc>%[4]s</desc>
%[5]s%[6]s`, width, height, html.EscapeString(title), html.EscapeString(description), style, strings.TrimLeft(body, "\n"))
	return out.Bytes(), nil
}

// describe returns in words what the plot shows.
func (p *Plot) describe() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s over %s.", p.Y, p.X)
	for _, s := range p.Series {
		fmt.Fprintf(&text, " %s: ", s.Name)
		if p.Kind == result.Traces {
			low, high := math.Inf(1), math.Inf(-1)
			for _, d := range s.Trace {
				low, high = min(low, d.Y), max(high, d.Y)
			}
			fmt.Fprintf(&text, "%s to %s, last %s.", number(low), number(high), number(s.Trace[len(s.Trace)-1].Y))
			continue
		}
		if p.Kind == result.CDF {
			fmt.Fprintf(&text, "%d repeats, %s to %s.", (len(s.Data)-1)/2, number(s.Data[0].X), number(s.Data[len(s.Data)-1].X))
			continue
		}
		var parts []string
		for _, d := range s.Data {
			at := number(d.X)
			if p.Names != nil {
				at = p.Names[int(d.X)]
			}
			value := number(d.Y)
			if d.High != nil {
				value += " ± " + number(*d.High-d.Y)
			}
			if d.Box != nil {
				value = fmt.Sprintf("median %s, quartiles %s and %s", value, number(d.Box.Q1), number(d.Box.Q3))
			}
			parts = append(parts, strings.TrimSpace(at+" "+value))
		}
		text.WriteString(strings.Join(parts, "; ") + ".")
	}
	return text.String()
}

// slots returns how many bars or boxes stand side by side over a name.
func (p *Plot) slots() int {
	n := 0
	for _, s := range p.Series {
		n = max(n, p.slot(s)+1)
	}
	return n
}

// slot returns a series' place among those: hue by hue, ours and then the published one. Other values are marked
// on ours.
func (p *Plot) slot(s Series) int {
	if p.Names == nil || p.Kind == result.Lines {
		return 0
	}
	at := 0
	for _, o := range p.Series {
		if (o.Hue < s.Hue || o.Hue == s.Hue && o.Kind == "" && s.Kind == result.Published) && p.stands(o) {
			at++
		}
	}
	return at
}

// stands says whether a series is drawn as bars or boxes of its own.
func (p *Plot) stands(s Series) bool {
	return s.Kind == "" || s.Kind == result.Published && p.Kind == result.Bars
}

func (p *Plot) nameTicks(drawing *plot.Plot) {
	drawing.X.Min, drawing.X.Max = -.5, float64(len(p.Names))-.5
	var ticks plot.ConstantTicks
	longest := vg.Length(0)
	for i, name := range p.Names {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: name})
		longest = max(longest, drawing.X.Tick.Label.Width(name))
	}
	drawing.X.Tick.Marker = ticks
	if longest > .8*plotWidth/vg.Length(len(p.Names)) {
		drawing.X.Tick.Label.Rotation = math.Pi / 6
		drawing.X.Tick.Label.XAlign, drawing.X.Tick.Label.YAlign = draw.XRight, draw.YTop
	}
}

// roundTicks returns ticks at some six round numbers.
func roundTicks(low, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/5)))
	for _, times := range []float64{2, 2.5, 2} { // 2, 5, 10
		if (high-low)/step > 7 {
			step *= times
		}
	}
	digits := max(0, int(-math.Floor(math.Log10(step)+1e-9)))
	var ticks []plot.Tick
	for i := int(math.Ceil(low/step - 1e-9)); float64(i) <= high/step+1e-9; i++ {
		v := float64(i) * step
		ticks = append(ticks, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', digits, 64)})
	}
	return ticks
}

// xTicks returns ticks where there are values or, if these are too close to each other, at round numbers.
func (p *Plot) xTicks() plot.Ticker {
	var at []float64
	for _, s := range p.Series {
		for _, d := range s.Data {
			if !slices.Contains(at, d.X) {
				at = append(at, d.X)
			}
		}
	}
	slices.Sort(at)
	for i := 1; i < len(at); i++ {
		if at[i]-at[i-1] < .06*(at[len(at)-1]-at[0]) {
			return plot.TickerFunc(roundTicks)
		}
	}
	var ticks plot.ConstantTicks
	for _, x := range at {
		ticks = append(ticks, plot.Tick{Value: x, Label: number(x)})
	}
	return ticks
}

// legend writes the series in rows at the top, and each kind of values to compare with once. It returns where the
// last row ends.
func (p *Plot) legend(area draw.Canvas, style text.Style) vg.Length {
	const thumb, gap, line = 22, 6, 17
	x, y := area.Min.X, area.Max.Y
	entry := func(m *mark, name string) {
		width := thumb + gap + style.Width(name) + 3*gap
		if x > area.Min.X && x+width > area.Max.X {
			x, y = area.Min.X, y-line
		}
		icon := draw.Canvas{Canvas: area.Canvas, Rectangle: vg.Rectangle{
			Min: vg.Point{X: x, Y: y - line + 4}, Max: vg.Point{X: x + thumb, Y: y - 3},
		}}
		m.thumbnail(icon)
		area.FillText(style, vg.Point{X: x + thumb + gap, Y: y - line + 6}, name)
		x += width
	}
	var kinds []string
	for _, s := range p.Series {
		switch {
		case s.Kind == "":
			entry(&mark{Series: s, kind: p.Kind}, s.Name)
		case !slices.Contains(kinds, s.Kind):
			kinds = append(kinds, s.Kind)
		}
	}
	for _, kind := range kinds {
		entry(&mark{Series: Series{Kind: kind, Hue: -1}, kind: p.Kind}, kind)
	}
	return y - line - gap
}

// mark draws one series.
type mark struct {
	Series
	kind        string // of the plot
	slots, slot int
}

func (m *mark) color() color.Color {
	if m.Hue < 0 {
		return ink.color()
	}
	return hue(m.Hue)
}

func (m *mark) line(width vg.Length) draw.LineStyle {
	s := draw.LineStyle{Color: m.color(), Width: width}
	switch m.Kind {
	case result.Published:
		s.Dashes = []vg.Length{6, 3}
	case result.Theory:
		s.Dashes = []vg.Length{1.5, 3}
	case result.Optimum:
		s.Dashes = []vg.Length{6, 3, 1.5, 3}
	}
	return s
}

// glyph returns a mark that tells series apart also without colour.
func (m *mark) glyph() draw.GlyphStyle {
	solid := []draw.GlyphDrawer{draw.CircleGlyph{}, polygon{4}, draw.PyramidGlyph{}, polygon{-4}, polygon{5}, polygon{3}, polygon{6}, draw.CrossGlyph{}}
	g := draw.GlyphStyle{Color: m.color(), Radius: 3.5}
	switch m.Kind {
	case "":
		i := max(m.Hue, 0)
		g.Shape = solid[(i+i/len(hues))%len(solid)] // another one when a hue comes again
	case result.Published:
		g.Shape = draw.RingGlyph{}
	case result.Theory:
		g.Shape, g.Radius = polygon{-4}, 4
	case result.Optimum:
		g.Shape, g.Radius = draw.PyramidGlyph{}, 4
	}
	return g
}

// polygon is a regular polygon, filled. Its top is a side or, if n is negative, a corner.
type polygon struct{ n int }

func (p polygon) DrawGlyph(c *draw.Canvas, s draw.GlyphStyle, at vg.Point) {
	n, turn := p.n, math.Pi/float64(p.n)
	if n < 0 {
		n, turn = -n, 0
	}
	var corners []vg.Point
	for i := range n {
		sin, cos := math.Sincos(turn + math.Pi/2 + 2*math.Pi*float64(i)/float64(n))
		corners = append(corners, vg.Point{X: at.X + s.Radius*vg.Length(cos), Y: at.Y + s.Radius*vg.Length(sin)})
	}
	c.FillPolygon(s.Color, corners)
}

const slotted = .8 // share of the distance between two names that bars and boxes take

// x returns where a datum stands, in the units of the axis.
func (m *mark) x(d Datum) float64 {
	if m.slots == 0 {
		return d.X
	}
	return d.X + (float64(m.slot)-float64(m.slots-1)/2)*slotted/float64(m.slots)
}

// DataRange returns what the axes have to reach (plot.DataRanger).
func (m *mark) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, ymax = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	include := func(y float64) { ymin, ymax = min(ymin, y), max(ymax, y) }
	for _, d := range slices.Concat(m.Data, m.Trace) {
		xmin, xmax = min(xmin, d.X), max(xmax, d.X)
		include(d.Y)
		if d.Low != nil {
			include(max(*d.Low, 0)) // no metric is negative, though the interval of few repeats may reach below
			include(*d.High)
		}
		if d.Box != nil {
			include(d.Box.Low)
			include(d.Box.High)
			for _, o := range d.Box.Outliers {
				include(o)
			}
		}
	}
	return
}

// Plot draws the series (plot.Plotter).
func (m *mark) Plot(c draw.Canvas, p *plot.Plot) {
	toX, toY := p.Transforms(&c)
	half := vg.Length(0)
	if m.slots > 0 {
		half = (toX(slotted/float64(m.slots)) - toX(0)) / 2 * .86
	}
	var path []vg.Point
	for _, d := range slices.Concat(m.Data, m.Trace) {
		at := vg.Point{X: toX(m.x(d)), Y: toY(d.Y)}
		path = append(path, at)
		switch {
		case m.kind == result.Bars && (m.Kind == "" || m.Kind == result.Published):
			m.bar(c, at.X, min(half, 30), toY(0), at.Y)
		case m.kind == result.Box && m.Kind == "":
			m.box(c, at.X, min(half, 24), d.Box, toY)
		case m.kind == result.Bars || m.kind == result.Box:
			c.DrawGlyph(m.outlined(c, at), at)
		}
	}
	if m.kind == result.Lines || m.kind == result.Traces || m.kind == result.CDF {
		width := vg.Length(1.8)
		if m.kind == result.Traces {
			width = 1.1
		}
		c.StrokeLines(m.line(width), c.ClipLinesXY(path)...)
	}
	for i, d := range m.Data {
		if m.kind == result.Lines {
			c.DrawGlyph(m.glyph(), path[i])
		}
		if d.High != nil {
			m.interval(c, path[i].X, toY(max(*d.Low, 0)), toY(*d.High))
		}
	}
}

// outlined draws a halo in the colour of the page below a glyph that lies on a bar, and returns the glyph.
func (m *mark) outlined(c draw.Canvas, at vg.Point) draw.GlyphStyle {
	g := m.glyph()
	halo := g
	halo.Color, halo.Radius = paper.color(), g.Radius+1.6
	c.DrawGlyph(halo, at)
	g.Color = ink.color()
	return g
}

func (m *mark) bar(c draw.Canvas, x, half, base, top vg.Length) {
	corners := rectangle(x-half, base, x+half, top)
	if m.Kind == "" {
		c.FillPolygon(m.color(), corners[:4])
		return
	}
	c.StrokeLines(draw.LineStyle{Color: m.color(), Width: 1.5}, corners)
}

func rectangle(x0, y0, x1, y1 vg.Length) []vg.Point {
	return []vg.Point{{X: x0, Y: y0}, {X: x1, Y: y0}, {X: x1, Y: y1}, {X: x0, Y: y1}, {X: x0, Y: y0}}
}

func (m *mark) box(c draw.Canvas, x, half vg.Length, b *Boxed, toY func(float64) vg.Length) {
	line := draw.LineStyle{Color: m.color(), Width: 1.5}
	c.StrokeLines(line,
		rectangle(x-half, toY(b.Q1), x+half, toY(b.Q3)),
		[]vg.Point{{X: x, Y: toY(b.Q3)}, {X: x, Y: toY(b.High)}}, []vg.Point{{X: x, Y: toY(b.Q1)}, {X: x, Y: toY(b.Low)}},
		[]vg.Point{{X: x - half/2, Y: toY(b.High)}, {X: x + half/2, Y: toY(b.High)}},
		[]vg.Point{{X: x - half/2, Y: toY(b.Low)}, {X: x + half/2, Y: toY(b.Low)}})
	line.Width = 3
	c.StrokeLines(line, []vg.Point{{X: x - half, Y: toY(b.Median)}, {X: x + half, Y: toY(b.Median)}})
	for _, o := range b.Outliers {
		c.DrawGlyph(draw.GlyphStyle{Color: m.color(), Radius: 1.8, Shape: draw.CircleGlyph{}}, vg.Point{X: x, Y: toY(o)})
	}
}

func (m *mark) interval(c draw.Canvas, x, low, high vg.Length) {
	style := draw.LineStyle{Color: ink.color(), Width: 1.1}
	if m.kind == result.Lines {
		style.Color = m.color()
	}
	const wing = 3
	c.StrokeLines(style, []vg.Point{{X: x, Y: low}, {X: x, Y: high}},
		[]vg.Point{{X: x - wing, Y: low}, {X: x + wing, Y: low}}, []vg.Point{{X: x - wing, Y: high}, {X: x + wing, Y: high}})
}

func (m *mark) thumbnail(c draw.Canvas) {
	middle := c.Center()
	switch {
	case m.kind == result.Lines || m.kind == result.Traces || m.kind == result.CDF:
		c.StrokeLine2(m.line(1.8), c.Min.X, middle.Y, c.Max.X, middle.Y)
		if m.kind == result.Lines {
			c.DrawGlyph(m.glyph(), middle)
		}
	case m.kind == result.Bars && (m.Kind == "" || m.Kind == result.Published):
		m.bar(c, middle.X, 8, c.Min.Y+.5, c.Max.Y-.5)
	case m.Kind == "":
		c.StrokeLines(draw.LineStyle{Color: m.color(), Width: 1.5}, rectangle(c.Min.X+2, c.Min.Y+.5, c.Max.X-2, c.Max.Y-.5))
		c.StrokeLine2(draw.LineStyle{Color: m.color(), Width: 3}, c.Min.X+2, middle.Y, c.Max.X-2, middle.Y)
	default:
		c.DrawGlyph(m.glyph(), middle)
	}
}
