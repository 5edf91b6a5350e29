//go:build !linux

package testkit

import "testing"

// ProcessesWith returns none: there is no /proc.
func ProcessesWith(*testing.T, string) []int { return nil }
