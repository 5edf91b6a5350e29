//go:build !linux

package kit

// CPUSeconds and peakRSS are known on Linux only, where the harness runs.
func CPUSeconds() float64 { return 0 }

func peakRSS() float64 { return 0 }
