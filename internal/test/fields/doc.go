// Package fields has the tests that no option and no field of a response is
// forgotten: each field of each option struct is set to a value and must arrive
// in the request, in the emulator and in what the API returns.
package fields
