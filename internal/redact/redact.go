// Package redact keeps secrets out of what is printed, logged and encoded.
package redact

// Mark replaces a secret wherever a value is formatted.
const Mark = "REDACTED"

// Hidden holds a value with secrets. Package fmt, which looks into unexported
// fields and with some verbs behind pointers, shows only a function's address.
type Hidden[T any] func() *T

// Hide returns a Hidden that holds value.
func Hide[T any](value *T) Hidden[T] { return func() *T { return value } }
