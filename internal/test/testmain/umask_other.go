//go:build !unix

package testmain

func setUmask(int) {}
