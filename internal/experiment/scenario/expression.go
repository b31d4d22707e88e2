// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr"
)

// expand returns text with the value of each $(…) in its place.
func (d *decoder) expand(text string) (string, error) {
	var out strings.Builder
	for {
		before, rest, found := strings.Cut(text, "$(")
		out.WriteString(before)
		if !found {
			return out.String(), nil
		}
		if d.env == nil {
			return "", errors.New("nothing varies here: write it without $(…)")
		}
		end := closing(rest)
		if end < 0 {
			return "", fmt.Errorf("$(%s has no closing parenthesis", rest)
		}
		value, err := compute(rest[:end], d.env)
		if err != nil {
			return "", err
		}
		out.WriteString(value)
		text = rest[end+1:]
	}
}

// closing returns the index of the parenthesis that ends an expression; -1 if there is none.
func closing(text string) int {
	depth, quote := 1, rune(0)
	for i, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			}
		case r == '\'' || r == '"':
			quote = r
		case r == '(':
			depth++
		case r == ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

var functions = []string{"abs", "ceil", "floor", "round", "min", "max"}

// compute returns the value of an expression as YAML has it.
func compute(code string, env map[string]any) (string, error) {
	options := []expr.Option{expr.Env(env), expr.DisableAllBuiltins()}
	for _, f := range functions {
		options = append(options, expr.EnableBuiltin(f))
	}
	program, err := expr.Compile(code, options...)
	var value any
	if err == nil {
		value, err = expr.Run(program, env)
	}
	if err != nil {
		// The first line says what is wrong; those below it point to the place.
		why, _, _ := strings.Cut(err.Error(), "\n")
		why, _, _ = strings.Cut(strings.TrimPrefix(why, "runtime error: "), " (1:")
		return "", fmt.Errorf("$(%s): %s: there are the variables %s, and the functions %s",
			code, why, strings.Join(slices.Sorted(maps.Keys(env)), ", "), strings.Join(functions, ", "))
	}
	switch v := value.(type) {
	case string:
		return v, nil
	case int:
		return strconv.Itoa(v), nil
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64), nil
	case bool:
		return strconv.FormatBool(v), nil
	}
	return "", fmt.Errorf("$(%s) is neither a number, a word, true nor false", code)
}

var isNumber = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// variable returns a value of the sweep as expressions see it: a number or a word.
func variable(text string) any {
	if isNumber.MatchString(text) {
		if i, err := strconv.Atoi(text); err == nil {
			return i
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return f
		}
	}
	return text
}
