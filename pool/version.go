package pool

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
)

// version returns a short word for the options of a sandbox: another one for others.
func (o *Options) version() string {
	h := sha256.New()
	if o.Version != "" {
		_, _ = io.WriteString(h, o.Version)
	} else {
		write(h, reflect.ValueOf(o.Create))
		_, _ = fmt.Fprint(h, o.Stopped, o.Warm != nil, o.Reset != nil)
		if info, ok := debug.ReadBuildInfo(); ok && (o.Warm != nil || o.Reset != nil) {
			_, _ = io.WriteString(h, info.Main.Version)
			for _, s := range info.Settings {
				if strings.HasPrefix(s.Key, "vcs.") {
					_, _ = io.WriteString(h, s.Value)
				}
			}
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:4])
}

// write writes all that a value has, secrets too, the same for the same value.
func write(w io.Writer, v reflect.Value) {
	if !v.IsValid() {
		_, _ = io.WriteString(w, "nil;")
		return
	}
	_, _ = fmt.Fprint(w, v.Type(), ";")
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		write(w, v.Elem())
	case reflect.Struct:
		for _, field := range v.Fields() {
			write(w, field)
		}
	case reflect.Slice, reflect.Array:
		_, _ = fmt.Fprint(w, v.Len(), ";")
		for i := range v.Len() {
			write(w, v.Index(i))
		}
	case reflect.Map:
		_, _ = fmt.Fprint(w, v.Len(), ";")
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for _, k := range keys {
			write(w, k)
			write(w, v.MapIndex(k))
		}
	case reflect.String:
		_, _ = fmt.Fprintf(w, "%q;", v.String())
	case reflect.Bool:
		_, _ = fmt.Fprint(w, v.Bool(), ";")
	case reflect.Float32, reflect.Float64:
		_, _ = fmt.Fprint(w, v.Float(), ";")
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		_, _ = fmt.Fprint(w, v.IsNil(), ";") // its code has no version
	default:
		if v.CanInt() {
			_, _ = fmt.Fprint(w, v.Int(), ";")
		} else if v.CanUint() {
			_, _ = fmt.Fprint(w, v.Uint(), ";")
		}
	}
}
