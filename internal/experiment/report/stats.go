// SPDX-License-Identifier: Apache-2.0

package report

import (
	"math"
	"slices"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"
)

const confidence = 0.95

// Estimate is a mean over repeats and its 95 % confidence interval by Student's t.
type Estimate struct {
	N    int      `json:"n"`
	Mean float64  `json:"mean"`
	Low  *float64 `json:"low"` // null with fewer than two repeats
	High *float64 `json:"high"`
}

func estimate(values []float64) Estimate {
	e := Estimate{N: len(values)}
	if e.N == 0 {
		return e
	}
	mean, deviation := stat.MeanStdDev(values, nil)
	e.Mean = mean
	if e.N > 1 {
		t := distuv.StudentsT{Sigma: 1, Nu: float64(e.N - 1)}.Quantile((1 + confidence) / 2)
		half := t * stat.StdErr(deviation, float64(e.N))
		low, high := mean-half, mean+half
		e.Low, e.High = &low, &high
	}
	return e
}

// half returns half the interval's width; 0 if there is none.
func (e Estimate) half() float64 {
	if e.High == nil {
		return 0
	}
	return *e.High - e.Mean
}

// Boxed is what a box plot shows: quartiles, whiskers that reach to the furthest values within 1.5 times the
// interquartile range of the box, and what is beyond them.
type Boxed struct {
	N        int       `json:"n"`
	Low      float64   `json:"low"`
	Q1       float64   `json:"q1"`
	Median   float64   `json:"median"`
	Q3       float64   `json:"q3"`
	High     float64   `json:"high"`
	Outliers []float64 `json:"outliers"`
}

// boxed returns the box of at least one value.
func boxed(values []float64) Boxed {
	v := slices.Sorted(slices.Values(values))
	b := Boxed{N: len(v), Q1: quantile(v, .25), Median: quantile(v, .5), Q3: quantile(v, .75), Outliers: []float64{}}
	reach := 1.5 * (b.Q3 - b.Q1)
	b.Low, b.High = b.Q1, b.Q3
	for _, x := range v {
		if x < b.Q1-reach || x > b.Q3+reach {
			b.Outliers = append(b.Outliers, x)
			continue
		}
		b.Low, b.High = min(b.Low, x), max(b.High, x)
	}
	return b
}

// quantile interpolates between order statistics by R's type 7, the default of R, NumPy and spreadsheets, which
// gonum lacks. sorted has at least one value.
func quantile(sorted []float64, p float64) float64 {
	at := p * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-math.Floor(at))*(sorted[i+1]-sorted[i])
}
