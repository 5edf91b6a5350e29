// Package redact keeps secrets out of printed, logged and encoded values.
package redact

// Mark replaces a secret wherever a value is formatted.
const Mark = "REDACTED"

// Hidden holds a value with secrets. Package fmt prints unexported fields and, with some verbs,
// values behind pointers. Of a function it prints only the address.
type Hidden[T any] func() *T

// Hide returns a Hidden that holds value.
func Hide[T any](value *T) Hidden[T] { return func() *T { return value } }
