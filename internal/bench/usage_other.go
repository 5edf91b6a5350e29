//go:build !linux

package main

// cpuSeconds and peakRSS are known on Linux only, where the harness runs.
func cpuSeconds() float64 { return 0 }

func peakRSS() float64 { return 0 }
