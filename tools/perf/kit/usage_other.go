//go:build !linux

package kit

// CPUSeconds and peakRSS return 0. The harness runs only on Linux.
func CPUSeconds() float64 { return 0 }

func peakRSS() float64 { return 0 }
