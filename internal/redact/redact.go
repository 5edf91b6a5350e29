// Package redact keeps secrets out of what is printed, logged and encoded.
package redact

// Mark stands for a secret wherever a value is formatted.
const Mark = "REDACTED"

// Hidden holds what secrets are in. Package fmt, which looks into unexported
// fields and with some verbs behind pointers, shows a function's address only.
type Hidden[T any] func() *T

// Hide returns a Hidden that holds value.
func Hide[T any](value *T) Hidden[T] { return func() *T { return value } }
