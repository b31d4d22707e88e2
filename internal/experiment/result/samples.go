// SPDX-License-Identifier: Apache-2.0

package result

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
)

// Sample is the state of one subflow at one time.
type Sample struct {
	Time      float64 // seconds since the measured phase began; negative in the warm-up
	Class     string
	User      int // from 0, in its class
	Subflow   int // as Subflow.ID
	Interface string
	Cwnd      uint32  // packets
	Ssthresh  *uint32 // packets; nil before the first loss
	SRTT      float64 // ms
	Rate      float64 // bit/s, the kernel's delivery rate
	Bytes     uint64  // acknowledged since the subflow began
	Retrans   uint64  // segments, since the subflow began
}

var sampleColumns = []string{
	"time_s", "class", "user", "subflow", "interface", "cwnd_packets", "ssthresh_packets", "srtt_ms",
	"rate_bps", "bytes_acked", "segments_retransmitted",
}

// SampleWriter writes samples as CSV.
type SampleWriter struct {
	file   *os.File
	csv    *csv.Writer
	failed bool // Write has said so
}

func newSampleWriter(file *os.File) (*SampleWriter, error) {
	w := &SampleWriter{file: file, csv: csv.NewWriter(file)}
	return w, w.csv.Write(sampleColumns)
}

// Write adds a sample.
func (w *SampleWriter) Write(s Sample) error {
	ssthresh := ""
	if s.Ssthresh != nil {
		ssthresh = fmt.Sprint(*s.Ssthresh)
	}
	err := w.csv.Write([]string{
		strconv.FormatFloat(s.Time, 'f', 3, 64), s.Class, strconv.Itoa(s.User), strconv.Itoa(s.Subflow), s.Interface,
		fmt.Sprint(s.Cwnd), ssthresh, strconv.FormatFloat(s.SRTT, 'f', 3, 64),
		strconv.FormatFloat(s.Rate, 'f', 0, 64), fmt.Sprint(s.Bytes), fmt.Sprint(s.Retrans),
	})
	w.failed = err != nil
	return err
}

// Close ends the file. An error that Write has returned is not said again.
func (w *SampleWriter) Close() error {
	if w.failed {
		return w.file.Close()
	}
	w.csv.Flush()
	return errors.Join(w.csv.Error(), w.file.Close())
}

// ReadSamples calls each with the samples of a run that Read returned, in their order.
func (r *Run) ReadSamples(each func(Sample)) error {
	file, err := open(r.folder, r.Samples)
	if err != nil {
		return err
	}
	defer file.Close()
	path := filepath.Join(r.folder, r.Samples)
	in := csv.NewReader(file)
	in.ReuseRecord = true
	header, err := in.Read()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if !slices.Equal(header, sampleColumns) {
		return fmt.Errorf("%s: its columns are %v, not %v", path, header, sampleColumns)
	}
	for {
		row, err := in.Read()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		s, err := parseSample(row)
		if err != nil {
			line, _ := in.FieldPos(0)
			return fmt.Errorf("%s, line %d: %w", path, line, err)
		}
		each(s)
	}
}

func parseSample(row []string) (Sample, error) {
	var errs []error
	number := func(column int) float64 {
		v, err := strconv.ParseFloat(row[column], 64)
		errs = append(errs, err)
		return v
	}
	whole := func(column, bits int) uint64 {
		v, err := strconv.ParseUint(row[column], 10, bits)
		errs = append(errs, err)
		return v
	}
	s := Sample{
		Time: number(0), Class: row[1], User: int(whole(2, 31)), Subflow: int(whole(3, 31)), Interface: row[4],
		Cwnd: uint32(whole(5, 32)), SRTT: number(7), Rate: number(8), Bytes: whole(9, 64), Retrans: whole(10, 64),
	}
	if row[6] != "" {
		ssthresh := uint32(whole(6, 32))
		s.Ssthresh = &ssthresh
	}
	for _, err := range errs {
		if err != nil {
			return s, err
		}
	}
	return s, nil
}
