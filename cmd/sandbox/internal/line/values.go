package line

import (
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// single is an option that may be set once.
type single[T any] struct {
	target *T
	parse  func(string) (T, error)
	kind   string
	text   string
}

// once marks options that may be set once, which Arrange checks.
func (v *single[T]) once() {}

func (v *single[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err != nil {
		return err
	}
	*v.target, v.text = parsed, text
	return nil
}

func (v *single[T]) String() string { return v.text }
func (v *single[T]) Type() string   { return v.kind }

// Option defines an option whose value parse reads.
func Option[T any](flags *pflag.FlagSet, target *T, name, short, kind, def, usage string, parse func(string) (T, error)) {
	v := &single[T]{target: target, parse: parse, kind: kind}
	if def != "" {
		parsed, err := parse(def)
		if err != nil {
			panic(fmt.Sprintf("the default of --%s: %v", name, err))
		}
		*target, v.text = parsed, def
	}
	flags.VarP(v, name, short, usage)
}

// ChoicesAnnotation lists the possible values of an option.
const ChoicesAnnotation = "choices"

// Choice defines an option whose value is one of several.
func Choice(flags *pflag.FlagSet, target *string, name, short, kind, usage string, allowed ...string) {
	Option(flags, target, name, short, kind, "", usage, parseOneOf(allowed...))
	Offer(flags, name, allowed...)
}

// Offer sets the values that completions offer for an option.
func Offer(flags *pflag.FlagSet, name string, values ...string) {
	f := flags.Lookup(name)
	if f.Annotations == nil {
		f.Annotations = map[string][]string{}
	}
	f.Annotations[ChoicesAnnotation] = values
}

// Toggle defines an option without a value.
func Toggle(flags *pflag.FlagSet, target *bool, name, short, usage string) {
	v := &single[bool]{target: target, kind: "bool", text: "false", parse: ParseBool}
	flags.VarPF(v, name, short, usage).NoOptDefVal = "true"
}

// Many is an option that may be repeated.
type Many[T any] struct {
	Target *[]T
	parse  func(string) (T, error)
	kind   string
	texts  []string
}

func (v *Many[T]) Set(text string) error {
	parsed, err := v.parse(text)
	if err != nil {
		return err
	}
	*v.Target = append(*v.Target, parsed)
	v.texts = append(v.texts, text)
	return nil
}

func (v *Many[T]) String() string { return strings.Join(v.texts, ", ") }
func (v *Many[T]) Type() string   { return v.kind }

// Many implements pflag.SliceValue, so that completions offer it again.

func (v *Many[T]) GetSlice() []string       { return v.texts }
func (v *Many[T]) Append(text string) error { return v.Set(text) }

func (v *Many[T]) Replace(texts []string) error {
	*v.Target, v.texts = nil, nil
	for _, t := range texts {
		if err := v.Set(t); err != nil {
			return err
		}
	}
	return nil
}

// Options defines an option that may be repeated.
func Options[T any](flags *pflag.FlagSet, target *[]T, name, short, kind, usage string, parse func(string) (T, error)) {
	flags.VarP(&Many[T]{Target: target, parse: parse, kind: kind}, name, short, usage)
}

// The parsers of the values of options and arguments.

// Variables defines the option for environment variables, whose values are never shown.
func Variables(flags *pflag.FlagSet, target *[]Pair, usage string) {
	Options(flags, target, "env", "e", "key=value", usage, parseVariable)
}
