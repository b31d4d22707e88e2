// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// field is one number of the JSON, and where it lies in the C structs.
type field struct {
	key    string
	image  int     // which of the evaluator's images holds it
	at     uint32  // where in there, bytes; the first subflow's, if each has one
	stride uint32  // bytes from one subflow's to the next one's
	places int     // how many subflows have one; 0 if the connection has it
	size   int     // bytes
	factor float64 // what the number is multiplied by to give the C integer
	number string  // the name of the C struct of a number that is no integer; see readNumber
}

// fieldsOf lists the fields of a member of a struct: a struct, or an array with one for each subflow. Fields of
// structs in there are fields too.
func fieldsOf(of *btf.Struct, member string, image int) ([]field, error) {
	i := slices.IndexFunc(of.Members, func(m btf.Member) bool { return m.Name == member })
	if i < 0 {
		return nil, nil
	}
	m := of.Members[i]
	start, t := field{image: image, at: m.Offset.Bytes()}, btf.UnderlyingType(m.Type)
	if array, ok := t.(*btf.Array); ok {
		t = btf.UnderlyingType(array.Type)
		size, err := btf.Sizeof(t)
		if err != nil {
			return nil, err
		}
		start.stride, start.places = uint32(size), int(array.Nelems)
	}
	s, ok := t.(*btf.Struct)
	if !ok {
		return nil, fmt.Errorf("struct %s: %s is neither a struct nor an array of them", of.Name, member)
	}
	return fieldsWithin(s, start, maxDepth)
}

// maxDepth is more than structs are nested in mpcc's headers. The types of somebody else's object may go in circles.
const maxDepth = 8

func fieldsWithin(s *btf.Struct, start field, depth int) ([]field, error) {
	if depth == 0 {
		return nil, fmt.Errorf("struct %s: it is more than %d structs deep", s.Name, maxDepth)
	}
	var fields []field
	for _, m := range s.Members {
		f := start
		f.at += m.Offset.Bytes()
		if inner, ok := btf.UnderlyingType(m.Type).(*btf.Struct); ok {
			if readNumber[inner.Name] == nil {
				more, err := fieldsWithin(inner, f, depth-1)
				if err != nil {
					return nil, err
				}
				fields = append(fields, more...)
				continue
			}
			f.number = inner.Name
		}
		size, err := btf.Sizeof(m.Type)
		if err != nil {
			return nil, fmt.Errorf("struct %s: %s: %w", s.Name, m.Name, err)
		}
		if of, is := numberSizes[f.number]; is && size != of || !is && !slices.Contains([]int{1, 2, 4, 8}, size) {
			return nil, fmt.Errorf("struct %s: %s has %d bytes, as no number has", s.Name, m.Name, size)
		}
		f.key, f.factor = jsonKey(m.Name)
		f.size = size
		fields = append(fields, f)
	}
	return fields, nil
}

// end is where the field ends in its image.
func (f field) end() uint64 {
	return uint64(f.at) + uint64(max(f.places, 1)-1)*uint64(f.stride) + uint64(f.size)
}

// fixedSuffixes are the formats a C field's name may end in (fixed.h), the suffix that stays in the
// JSON key, and the factor between the two.
var fixedSuffixes = []struct {
	c, json string
	factor  float64
}{
	{"_us8", "_us", 8},
}

func jsonKey(name string) (key string, factor float64) {
	for _, s := range fixedSuffixes {
		if base, ok := strings.CutSuffix(name, s.c); ok {
			return base + s.json, s.factor
		}
	}
	return name, 1
}

// hasKey tells whether a field of the key is among these.
func hasKey(fields []field, key string) bool {
	return slices.ContainsFunc(fields, func(f field) bool { return f.key == key })
}

// encode writes the numbers of the connection, or of one subflow, into the images. It is an error if a key is
// not one of the fields or a number out of its range.
func encode(images [][]byte, fields []field, subflow int, values Numbers) error {
	for _, f := range fields {
		if value, ok := values[f.key]; ok {
			if err := f.write(images[f.image][f.at+uint32(subflow)*f.stride:], value); err != nil {
				return fmt.Errorf("%s: %w", f.key, err)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !hasKey(fields, key) {
			return unknownKey(key, fields)
		}
	}
	return nil
}

func unknownKey(key string, fields []field) error {
	var known []string
	for _, f := range fields {
		known = append(known, f.key)
	}
	return fmt.Errorf("%s: unknown key; known are %s", key, strings.Join(known, ", "))
}

// decode reads the numbers of the connection, or of one subflow, from the images. Nil if it has no fields.
func decode(images [][]byte, fields []field, subflow int) Numbers {
	if fields == nil {
		return nil
	}
	values := Numbers{}
	for _, f := range fields {
		values[f.key] = f.read(images[f.image][f.at+uint32(subflow)*f.stride:])
	}
	return values
}

func (f field) write(raw []byte, value float64) error {
	if f.number != "" {
		if value < 0 || math.IsNaN(value) || math.IsInf(value, 0) {
			return fmt.Errorf("%v is out of range, 0 and up", value)
		}
		writeNumber(raw, value)
		return nil
	}
	number, limit := math.Round(value*f.factor), math.Ldexp(1, f.size*8)
	if f.size == 1 {
		limit = 2 // a byte is a flag
	}
	if value < 0 || number >= limit || math.IsNaN(value) {
		return fmt.Errorf("%v is out of range, 0 to %.0f", value, (limit-1)/f.factor)
	}
	putUint(raw, f.size, uint64(number))
	return nil
}

func (f field) read(raw []byte) float64 {
	if f.number != "" {
		return readNumber[f.number](raw)
	}
	return float64(getUint(raw, f.size)) / f.factor
}

// readNumber reads the structs of fixed.h and path.h that stand for one number, by their names.
var readNumber = map[string]func(raw []byte) float64{
	"mpcc_num":  readNum,
	"mpcc_step": func(raw []byte) float64 { return readNum(raw) - readNum(raw[8:]) },
	"mpcc_coupling": func(raw []byte) float64 {
		if nativeEndian.Uint32(raw[8:]) != 0 {
			return -readNum(raw)
		}
		return readNum(raw)
	},
}

// numberSizes are their sizes in bytes.
var numberSizes = map[string]int{"mpcc_num": 8, "mpcc_step": 16, "mpcc_coupling": 16}

func readNum(raw []byte) float64 {
	return math.Ldexp(float64(nativeEndian.Uint32(raw)), int(int32(nativeEndian.Uint32(raw[4:]))))
}

// writeNumber writes a struct mpcc_num of fixed.h: 2^31 <= m < 2^32, or 0.
func writeNumber(raw []byte, value float64) {
	fraction, exponent := math.Frexp(value)
	m := uint64(math.Ldexp(fraction, 32))
	nativeEndian.PutUint32(raw, uint32(m))
	nativeEndian.PutUint32(raw[4:], uint32(int32(exponent-32)))
}
