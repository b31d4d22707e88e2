// SPDX-License-Identifier: Apache-2.0

package exporter

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/mpcc/mpcc/pkg/telemetry"
)

// srttHistogram is a total's RTT, classic and native at once: its buckets end at powers of two of a
// second, as those of native schema 0 do.
type srttHistogram struct {
	total  *telemetry.Total
	labels labels
}

func (srttHistogram) Desc() *prometheus.Desc { return srttDesc }

func (h srttHistogram) Write(out *dto.Metric) error {
	rtt := h.total.RTT
	last := len(rtt) - 1 // holds what is longer, too: +Inf for the classic histogram
	var buckets []*dto.Bucket
	var count uint64
	for i, n := range rtt {
		count += n
		if i < last {
			buckets = append(buckets, &dto.Bucket{CumulativeCount: new(count), UpperBound: new(telemetry.RTTBound(i))})
		}
	}
	// The first bucket has no lower end: it is the zero bucket. The others are deltas, from the native
	// bucket on whose number is the exponent of its end.
	deltas := make([]int64, last)
	for i := range deltas {
		deltas[i] = int64(rtt[i+1])
		if i > 0 {
			deltas[i] -= int64(rtt[i])
		}
	}
	out.Label = prometheus.MakeLabelPairs(srttDesc, h.labels.values())
	out.Histogram = &dto.Histogram{
		SampleCount:   &count,
		SampleSum:     new(time.Duration(h.total.RTTSum).Seconds()),
		Bucket:        buckets,
		Schema:        new(int32(0)),
		ZeroThreshold: new(telemetry.RTTBound(0)),
		ZeroCount:     &rtt[0],
		PositiveSpan:  []*dto.BucketSpan{{Offset: new(int32(math.Ilogb(telemetry.RTTBound(1)))), Length: new(uint32(last))}},
		PositiveDelta: deltas,
	}
	return nil
}
