package wire

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
)

// plainSession is Session without its methods.
type plainSession Session

// sessionFields has the names of Session's fields in JSON.
var sessionFields = func() map[string]bool {
	known := map[string]bool{}
	for f := range reflect.TypeFor[Session]().Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "-" {
			known[name] = true
		}
	}
	return known
}()

// UnmarshalJSON keeps unknown fields in Extra.
func (s *Session) UnmarshalJSON(data []byte) error {
	var plain plainSession
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	err := json.Unmarshal(data, &plain.Extra)
	maps.DeleteFunc(plain.Extra, func(name string, _ json.RawMessage) bool { return sessionFields[name] })
	if len(plain.Extra) == 0 {
		plain.Extra = nil
	}
	*s = Session(plain)
	return err
}

// MarshalJSON encodes the fields in Extra along with the others.
func (s Session) MarshalJSON() ([]byte, error) {
	data, err := json.Marshal(plainSession(s))
	if err != nil || len(s.Extra) == 0 {
		return data, err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, err
	}
	for k, v := range s.Extra {
		if !sessionFields[k] {
			all[k] = v
		}
	}
	return json.Marshal(all)
}
