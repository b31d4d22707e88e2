// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/mpcc/mpcc/pkg/energy"
)

// Figure is one coefficient and its error.
type Figure struct {
	Value float64 `json:"value"`
	Error float64 `json:"standard_error"`
	Low   float64 `json:"low"` // to High: where it is with a probability of 95 %
	High  float64 `json:"high"`
}

// Result is a fitted profile.
type Result struct {
	Uplink   *Figure `json:"uplink_mw_per_mbps"`   // nil where next to nothing was sent
	Downlink *Figure `json:"downlink_mw_per_mbps"` // nil where next to nothing was received
	Base     Figure  `json:"base_mw"`
	Rest     Figure  `json:"rest_mw"` // what the meter measured beside the interface

	Samples     int     `json:"samples"`
	Independent float64 `json:"independent_samples"` // as many say as much: neighbours may resemble each other
	Fresh       int     `json:"fresh_samples"`       // with another power than the one before: a slow meter repeats itself
	Seconds     float64 `json:"seconds"`
	Residual    float64 `json:"residual_watts"` // standard deviation of the samples from the fit
	R2          float64 `json:"r2"`             // part of the power's variance that the fit explains
}

const (
	fewestSamples = 20
	fewestOfKind  = 5    // at rest, and active
	confidence    = 0.95 // of Low to High
	// A direction whose highest rate is below this part of the other's had no more than acknowledgements.
	acknowledgements = 0.05
	// The error of a figure may be as many times what it would be if the others were known. Beyond it, the data do
	// not tell them apart.
	mostInflated = 10
	// A figure may be below 0 by as many standard errors: more is no accident.
	accident = 4
)

// The regressors, but for the constant one.
const (
	active = iota
	sent
	received
)

// regressor is what power may depend on, centred and of length 1.
type regressor struct {
	kind         int
	mean, length float64
	x            []float64
}

func newRegressor(kind int, samples []Sample) regressor {
	g := regressor{kind: kind, x: make([]float64, len(samples))}
	for i, s := range samples {
		g.x[i] = [...]float64{active: s.Active, sent: s.Sent, received: s.Received}[kind]
	}
	g.mean, g.length = centre(g.x)
	if g.length > 0 {
		for i := range g.x {
			g.x[i] /= g.length
		}
	}
	return g
}

// centre subtracts the mean, and returns it with the length of what is left.
func centre(x []float64) (mean, length float64) {
	mean = stat.Mean(x, nil)
	for i := range x {
		x[i] -= mean
		length += x[i] * x[i]
	}
	return mean, math.Sqrt(length)
}

func dot(a, b []float64) (sum float64) {
	for i := range a {
		sum += a[i] * b[i]
	}
	return sum
}

// Fit returns the profile by which the squares of the samples' distances from the model are least, with no figure
// below 0. The errors are those of the fit without that bound, and allow for neighbouring samples that resemble each
// other, as those of a meter that follows slowly, or of other load, do. The error says in plain words why the samples
// do not tell the figures, and what to do about it.
func Fit(samples []Sample) (*Result, error) {
	if err := enough(samples); err != nil {
		return nil, err
	}
	n := len(samples)
	regressors := []regressor{newRegressor(active, samples)}
	highestSent, highestReceived := highest(samples)
	if highestSent >= acknowledgements*highestReceived {
		regressors = append(regressors, newRegressor(sent, samples))
	}
	if highestReceived >= acknowledgements*highestSent {
		regressors = append(regressors, newRegressor(received, samples))
	}
	k := len(regressors)
	watts := make([]float64, n)
	for i, s := range samples {
		watts[i] = s.Watts
	}
	meanWatts, spread := centre(watts)
	if spread <= 1e-9*math.Abs(meanWatts)*math.Sqrt(float64(n)) {
		return nil, fmt.Errorf("the meter showed %.4g W all the time: it does not see what the interface takes", meanWatts)
	}

	correlation, with := mat.NewSymDense(k, nil), mat.NewVecDense(k, nil)
	for i, a := range regressors {
		with.SetVec(i, dot(a.x, watts))
		for j, b := range regressors[:i+1] {
			correlation.SetSym(i, j, dot(a.x, b.x))
		}
	}
	inverse, err := inverted(correlation)
	for i := 0; err == nil && i < k; i++ {
		if inverse.At(i, i) > mostInflated*mostInflated {
			err = errCollinear
		}
	}
	if err != nil {
		return nil, errors.New(whyCollinear(samples, regressors))
	}
	var free mat.VecDense
	free.MulVec(inverse, with)
	best := leastSquares(correlation, with)

	// What the model leaves of each sample.
	left := slices.Clone(watts)
	for j, g := range regressors {
		for i := range left {
			left[i] -= best[j] * g.x[i]
		}
	}
	squares := dot(left, left)
	r := &Result{Samples: n, R2: 1 - squares/(spread*spread)}
	for i, s := range samples {
		r.Seconds += s.Duration.Seconds()
		if i == 0 || math.Abs(s.Watts-samples[i-1].Watts) > 1e-9*math.Abs(s.Watts) {
			r.Fresh++
		}
	}
	r.Residual = math.Sqrt(squares / float64(n-k-1))
	alike := resemblance(left)
	r.Independent = float64(n) * (1 - alike) / (1 + alike)
	deviation := r.Residual * math.Sqrt((1+alike)/(1-alike))
	t := distuv.StudentsT{Sigma: 1, Nu: max(1, r.Independent-float64(k+1))}.Quantile((1 + confidence) / 2)

	figure := func(value, deviation float64) Figure { // from W to mW
		return Figure{1e3 * value, 1e3 * deviation, 1e3 * (value - t*deviation), 1e3 * (value + t*deviation)}
	}
	rest, restVariance := meanWatts, 1/float64(n)
	for i, g := range regressors {
		d := deviation * math.Sqrt(inverse.At(i, i)) / g.length
		if b := free.AtVec(i) / g.length; b < -accident*d && -free.AtVec(i) > 1e-9*spread {
			return nil, errors.New(whyNegative(g.kind, -1e3*b, 1e3*d))
		}
		f := figure(best[i]/g.length, d)
		f.Low = max(0, f.Low)
		switch g.kind {
		case active:
			r.Base = f
		case sent:
			r.Uplink = &f
		case received:
			r.Downlink = &f
		}
		rest -= best[i] / g.length * g.mean
		for j, h := range regressors {
			restVariance += g.mean / g.length * inverse.At(i, j) * h.mean / h.length
		}
	}
	r.Rest = figure(rest, deviation*math.Sqrt(restVariance))
	return r, nil
}

// enough returns an error where there are too few samples of a kind.
func enough(samples []Sample) error {
	atRest, busy := 0, 0
	for _, s := range samples {
		if s.Active < 0.5 {
			atRest++
		} else {
			busy++
		}
	}
	switch {
	case len(samples) < fewestSamples:
		return fmt.Errorf("it takes %d samples at least, not %d: measure longer", fewestSamples, len(samples))
	case busy == 0:
		return errors.New("no data moved: let it send and receive meanwhile, in steps from idle to full, e.g. with iperf3")
	case busy < fewestOfKind:
		return fmt.Errorf("data moved in %d samples only, it takes %d: let it send and receive for longer", busy, fewestOfKind)
	case atRest < fewestOfKind:
		return fmt.Errorf("the interface was at rest in %d samples only, it takes %d: let it rest at times, so that its base can be told from what else the meter measures",
			atRest, fewestOfKind)
	}
	return nil
}

func highest(samples []Sample) (sent, received float64) {
	for _, s := range samples {
		sent, received = max(sent, s.Sent), max(received, s.Received)
	}
	return sent, received
}

var errCollinear = errors.New("the regressors depend on each other")

func inverted(m *mat.SymDense) (*mat.SymDense, error) {
	var c mat.Cholesky
	var inverse mat.SymDense
	if !c.Factorize(m) {
		return nil, errCollinear
	}
	if err := c.InverseTo(&inverse); err != nil {
		return nil, errCollinear
	}
	return &inverse, nil
}

// leastSquares returns the coefficients of the regressors that leave least, none below 0. Where the best has some at
// 0 it is the plain least squares of the others: with three of them all cases can be tried.
func leastSquares(correlation *mat.SymDense, with *mat.VecDense) []float64 {
	k := with.Len()
	best, most := make([]float64, k), 0.0 // most is how much of the squares is explained
	for set := 1; set < 1<<k; set++ {
		var in []int
		for i := range k {
			if set&(1<<i) != 0 {
				in = append(in, i)
			}
		}
		part, right := mat.NewSymDense(len(in), nil), mat.NewVecDense(len(in), nil)
		for i, a := range in {
			right.SetVec(i, with.AtVec(a))
			for j, b := range in[:i+1] {
				part.SetSym(i, j, correlation.At(a, b))
			}
		}
		inverse, err := inverted(part)
		if err != nil {
			continue // not where the whole has an inverse
		}
		var solved mat.VecDense
		solved.MulVec(inverse, right)
		if explained := mat.Dot(&solved, right); mat.Min(&solved) >= 0 && explained > most {
			best, most = make([]float64, k), explained
			for i, a := range in {
				best[a] = solved.AtVec(i)
			}
		}
	}
	return best
}

// resemblance is the correlation of neighbours, from 0 to below 1.
func resemblance(left []float64) float64 {
	all := dot(left, left)
	if all == 0 {
		return 0
	}
	return min(max(0, dot(left[1:], left[:len(left)-1])/all), 0.99)
}

// whyCollinear tells why the data do not tell the figures apart.
func whyCollinear(samples []Sample, regressors []regressor) string {
	if len(regressors) == 3 && dot(regressors[1].x, regressors[2].x) > 0.99 {
		return "what it received followed what it sent all the time: let it send and receive at different times, e.g. with iperf3, and with iperf3 -R"
	}
	for _, g := range regressors[1:] {
		rate, word := func(s Sample) float64 { return s.Sent }, "sent"
		if g.kind == received {
			rate, word = func(s Sample) float64 { return s.Received }, "received"
		}
		var rates []float64
		for _, s := range samples {
			if s.Active == 1 {
				rates = append(rates, rate(s))
			}
		}
		if len(rates) < fewestOfKind {
			continue
		}
		slices.Sort(rates)
		low, high := stat.Quantile(0.05, stat.Empirical, rates, nil), stat.Quantile(0.95, stat.Empirical, rates, nil)
		if high-low < 0.2*high {
			return fmt.Sprintf("it %s %.3g Mbit/s all the time that it was active: let the rate vary from idle to full, e.g. with iperf3 -b 1M, 5M, 20M", word, high)
		}
	}
	return "rates and activity rose and fell together: let it send and receive in steps from idle to full, one direction after the other"
}

func whyNegative(kind int, fell, deviation float64) string {
	of := [...]string{active: "mW while the interface was active", sent: "mW for each Mbit/s sent", received: "mW for each Mbit/s received"}[kind]
	return fmt.Sprintf("the power fell by %.3g ± %.2g %s: something else than the interface changed with its traffic", fell, deviation, of)
}

// Profile returns the result as a profile. What was not learned is missing in it.
func (r *Result) Profile(name, source string) energy.Profile {
	return energy.Profile{
		Name: name, Source: source,
		Uplink: rounded(r.Uplink), Downlink: rounded(r.Downlink), Base: rounded(&r.Base),
	}
}

// rounded leaves two digits of the error.
func rounded(f *Figure) *float64 {
	if f == nil {
		return nil
	}
	scale := math.Pow10(f.Decimals())
	return new(math.Round(f.Value*scale) / scale)
}

// Decimals is how many decimals to write: down to the second digit of the error.
func (f *Figure) Decimals() int {
	const most = 6
	if f.Error <= 0 {
		return most
	}
	return min(max(0, 1-int(math.Floor(math.Log10(f.Error)))), most)
}
