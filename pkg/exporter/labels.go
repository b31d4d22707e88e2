// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// labels are the values of a series' labels in one comparable value, which makes it a key to add up by: two
// series of the same labels would spoil a scrape. Only labelsOf makes them; a + b are the values of both.
type labels string

// labelEnd ends each value. It is no byte of UTF-8, and so in no value.
const labelEnd = "\xff"

// labelsOf returns values as labels, with U+FFFD for whatever is not UTF-8: Prometheus takes nothing else,
// while the kernel takes nearly any bytes as the name of an interface.
func labelsOf(values ...string) labels {
	var l strings.Builder
	for _, v := range values {
		l.WriteString(strings.ToValidUTF8(v, "\uFFFD"))
		l.WriteString(labelEnd)
	}
	return labels(l.String())
}

func (l labels) values() []string {
	values := strings.Split(string(l), labelEnd)
	return values[:len(values)-1]
}

// sample returns one value of a metric. Every series but the histogram is made here.
func sample(d *prometheus.Desc, kind prometheus.ValueType, value float64, l labels) prometheus.Metric {
	m, err := prometheus.NewConstMetric(d, kind, value, l.values()...)
	if err != nil {
		return prometheus.NewInvalidMetric(d, err)
	}
	return m
}
