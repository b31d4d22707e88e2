// SPDX-License-Identifier: Apache-2.0

// Command gen writes testdata/vectors/derived: what test/reference decides at the corners of the valid
// range and for some connections drawn at random. The published vectors beside it are typed by hand.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/mpcc/mpcc/test/reference"
)

const drawn = 12

func main() {
	out := flag.String("out", "testdata/vectors/derived", "folder to write to")
	flag.Parse()
	if err := os.MkdirAll(*out, 0o755); err != nil {
		log.Fatal(err)
	}
	if err := writeSchedulers(filepath.Join(*out, "sched")); err != nil {
		log.Fatal(err)
	}
	for _, name := range reference.Names() {
		text, err := vectors(name)
		if err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(*out, name+".json"), text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

func vectors(name string) ([]byte, error) {
	a, err := reference.Of(name)
	if err != nil {
		return nil, err
	}
	var cases []string
	add := func(title string, subflows []reference.Subflow, set reference.Tunables) error {
		c := reference.Case{Name: title, Source: "test/reference/" + name + ".go", Set: set, Subflows: subflows}
		for _, d := range a.Decide(subflows, set) {
			c.Expect.Increase = append(c.Expect.Increase, rounded(d.Up-d.Down))
			c.Expect.AfterLoss = append(c.Expect.AfterLoss, d.AfterLoss)
			c.Expect.Coupling = append(c.Expect.Coupling, rounded(d.Coupling))
			if a.SetsWindow {
				c.Expect.Window = append(c.Expect.Window, d.Window)
				c.Expect.Ssthresh = append(c.Expect.Ssthresh, d.Ssthresh)
			}
		}
		text, err := format(c)
		cases = append(cases, text)
		return err
	}
	for _, set := range append([]reference.Tunables{nil}, a.Sets...) {
		for _, c := range append(corners(), a.Corners...) {
			if err := add(c.Name, c.Subflows, set); err != nil {
				return nil, err
			}
		}
		r := rand.New(rand.NewPCG(1, 2))
		for i := range drawn {
			if err := add(fmt.Sprintf("drawn %d", i+1), a.Random(r), set); err != nil {
				return nil, err
			}
		}
	}
	return fmt.Appendf(nil, "{\"algorithm\": %q, \"cases\": [\n%s\n]}\n", name, strings.Join(cases, ",\n")), nil
}

// rounded drops what may differ between machines.
func rounded(x float64) float64 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', 10, 64), 64)
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// format writes a case with one line for each subflow.
func format(c reference.Case) (string, error) {
	var b strings.Builder
	head, err := json.Marshal(map[string]string{"name": c.Name, "source": c.Source})
	if err != nil {
		return "", err
	}
	b.WriteString("\t" + strings.TrimSuffix(string(head), "}"))
	if c.Set != nil {
		set, err := json.Marshal(c.Set)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&b, ", \"set\": %s", set)
	}
	b.WriteString(", \"subflows\": [")
	for i, s := range c.Subflows {
		line, err := json.Marshal(s)
		if err != nil {
			return "", err
		}
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, "\n\t\t%s", line)
	}
	expect, err := json.Marshal(c.Expect)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "\n\t], \"expect\": %s}", expect)
	return b.String(), nil
}
