// SPDX-License-Identifier: Apache-2.0

package learn

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Log is what another meter has logged, and perhaps the traffic with it.
type Log struct {
	power Power
	rows  []Sample
	sent  bool // it has a column of what was sent
	got   bool // and of what was received
}

// Power is what the meter counted.
func (l *Log) Power() Power { return l.power }

// HasTraffic reports whether the log has columns of traffic.
func (l *Log) HasTraffic() bool { return l.sent || l.got }

// Samples has one for each row but the first; only where the log has traffic.
func (l *Log) Samples() []Sample {
	if !l.HasTraffic() {
		return nil
	}
	return l.rows
}

// The columns of a CSV.
const (
	timeColumn   = "time"   // RFC 3339, or seconds since 1970
	wattsColumn  = "watts"  // mean power since the row before
	joulesColumn = "joules" // counter of energy
	txBytes      = "tx_bytes"
	rxBytes      = "rx_bytes" // counters, as the interface has them
	txRate       = "tx_mbps"
	rxRate       = "rx_mbps" // mean rates since the row before, Mbit/s
)

var columns = []string{timeColumn, wattsColumn, joulesColumn, txBytes, rxBytes, txRate, rxRate}

// largest is above every figure that a meter or an interface can have; sums of a file's rows stay finite.
const largest = 1e18

// lineError puts the line first, in one form for all errors of a file.
func lineError(line int, format string, args ...any) error {
	return fmt.Errorf("line %d: %w", line, fmt.Errorf(format, args...))
}

// ReadCSV reads a log: a header with the names of the columns, then a row for each reading. There has to be time, and
// one of watts and joules. For the traffic there may be tx_bytes or tx_mbps, and rx_bytes or rx_mbps. Errors tell the
// line.
func ReadCSV(in io.Reader) (*Log, error) {
	r := csv.NewReader(in)
	r.TrimLeadingSpace = true // also before quotes
	header, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil, lineError(1, "the file is empty; its first line has the names of the columns: %s", strings.Join(columns, ", "))
	}
	if err != nil {
		return nil, readError(err)
	}
	column, err := readHeader(header)
	if err != nil {
		return nil, lineError(1, "%w", err)
	}
	l := &Log{}
	_, sentBytes := column[txBytes]
	_, sentRate := column[txRate]
	_, gotBytes := column[rxBytes]
	_, gotRate := column[rxRate]
	l.sent, l.got = sentBytes || sentRate, gotBytes || gotRate

	var last *row
	var quiet time.Time
	for {
		fields, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, readError(err)
		}
		line, _ := r.FieldPos(0)
		now, err := readRow(fields, column)
		if err == nil && last != nil {
			err = now.follows(last, column)
		}
		if err != nil {
			return nil, lineError(line, "%w", err)
		}
		if last == nil {
			quiet = now.at
			l.power = append(l.power, Point{now.at, 0})
		} else {
			s := now.since(last, column)
			if s.Active > 0 {
				quiet = now.at
			}
			s.Idle = now.at.Sub(quiet)
			l.rows = append(l.rows, s)
			l.power = append(l.power, Point{now.at, l.power[len(l.power)-1].Joules + s.Watts*s.Duration.Seconds()})
		}
		last = now
	}
	return l, nil
}

// readError is csv.Reader's error in that form.
func readError(err error) error {
	if parse := (*csv.ParseError)(nil); errors.As(err, &parse) {
		return lineError(parse.Line, "%w", parse.Err)
	}
	return err
}

// readHeader returns the columns' indices by name.
func readHeader(names []string) (map[string]int, error) {
	column := map[string]int{}
	for i, name := range names {
		if i == 0 {
			name = strings.TrimPrefix(name, "\ufeff") // with which spreadsheets begin a file
		}
		name = strings.TrimSpace(name)
		if !slices.Contains(columns, name) {
			return nil, fmt.Errorf("column %q is none of %s", name, strings.Join(columns, ", "))
		}
		if _, twice := column[name]; twice {
			return nil, fmt.Errorf("there are two columns %s", name)
		}
		column[name] = i
	}
	if _, ok := column[timeColumn]; !ok {
		return nil, errors.New("there is no column time")
	}
	for _, either := range [][2]string{{wattsColumn, joulesColumn}, {txBytes, txRate}, {rxBytes, rxRate}} {
		_, one := column[either[0]]
		_, other := column[either[1]]
		switch {
		case one && other:
			return nil, fmt.Errorf("there are both columns %s and %s: leave one out", either[0], either[1])
		case !one && !other && either[0] == wattsColumn:
			return nil, errors.New("there is neither a column watts nor one joules")
		}
	}
	return column, nil
}

// row is one line: figures by column, counters of bytes apart, as they may be longer than a float64 holds.
type row struct {
	at    time.Time
	value map[string]float64
	bytes map[string]uint64
}

func readRow(fields []string, column map[string]int) (*row, error) {
	now := &row{value: map[string]float64{}, bytes: map[string]uint64{}}
	for _, name := range columns {
		i, ok := column[name]
		if !ok {
			continue
		}
		text := strings.TrimSpace(fields[i])
		var err error
		switch name {
		case timeColumn:
			now.at, err = readTime(text)
		case txBytes, rxBytes:
			if now.bytes[name], err = strconv.ParseUint(text, 10, 64); err != nil {
				err = fmt.Errorf("%s is %q, not a whole number of bytes", name, text)
			}
		default:
			now.value[name], err = readNumber(name, text)
		}
		if err != nil {
			return nil, err
		}
	}
	return now, nil
}

func readNumber(name, text string) (float64, error) {
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(v) || math.Abs(v) > largest {
		return 0, fmt.Errorf("%s is %q, not a number", name, text)
	}
	if v < 0 && (name == txRate || name == rxRate) {
		return 0, fmt.Errorf("%s is %s, below 0", name, text)
	}
	return v, nil
}

// latest is the end of the year 9999, in seconds since 1970.
const latest = 253402300799

func readTime(text string) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return t, nil
	}
	seconds, err := strconv.ParseFloat(text, 64)
	if err != nil || !(seconds >= 0 && seconds <= latest) {
		return time.Time{}, fmt.Errorf("time is %q, neither RFC 3339, as 2026-01-31T12:00:00.5Z, nor seconds since 1970", text)
	}
	whole, part := math.Modf(seconds)
	return time.Unix(int64(whole), int64(part*1e9)), nil
}

// follows returns an error unless the row can come after the last one.
func (now *row) follows(last *row, column map[string]int) error {
	if !now.at.After(last.at) {
		return errors.New("the time is not after that of the row before")
	}
	if _, ok := column[joulesColumn]; ok && now.value[joulesColumn] < last.value[joulesColumn] {
		return fmt.Errorf("joules fell from %g to %g: it has to be a counter", last.value[joulesColumn], now.value[joulesColumn])
	}
	for _, name := range []string{txBytes, rxBytes} {
		if now.bytes[name] < last.bytes[name] {
			return fmt.Errorf("%s fell from %d to %d: it has to be a counter", name, last.bytes[name], now.bytes[name])
		}
	}
	return nil
}

// since makes a sample of the time between two rows. Without traffic its rates are 0.
func (now *row) since(last *row, column map[string]int) Sample {
	s := Sample{Duration: now.at.Sub(last.at), Watts: now.value[wattsColumn]}
	if _, ok := column[joulesColumn]; ok {
		s.Watts = (now.value[joulesColumn] - last.value[joulesColumn]) / s.Duration.Seconds()
	}
	rate := func(counter, mean string) float64 {
		if _, ok := column[counter]; ok {
			return mbps(now.bytes[counter]-last.bytes[counter], s.Duration)
		}
		return now.value[mean]
	}
	s.Sent, s.Received = rate(txBytes, txRate), rate(rxBytes, rxRate)
	if s.Sent+s.Received >= chatterRate {
		s.Active = 1
	}
	return s
}
