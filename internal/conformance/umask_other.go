//go:build !unix

package conformance

func setUmask() {}
