package units_test

import (
	"testing"

	"github.com/go-vercel/sandbox/internal/test/testmain"
)

func TestMain(m *testing.M) { testmain.Main(m) }
