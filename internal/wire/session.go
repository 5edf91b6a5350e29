package wire

import (
	"encoding/json"
	"maps"
	"reflect"
)

// plainSession is Session without its methods.
type plainSession Session

// sessionFields are the names of Session's fields in JSON.
var sessionFields = jsonNames(reflect.TypeFor[Session]())

// UnmarshalJSON keeps unknown fields in Extra.
func (s *Session) UnmarshalJSON(data []byte) error {
	var plain plainSession
	if err := json.Unmarshal(data, &plain); err != nil {
		return err
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	maps.DeleteFunc(all, func(name string, _ json.RawMessage) bool { return sessionFields[name] })
	if len(all) > 0 {
		plain.Extra = all
	}
	*s = Session(plain)
	return nil
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
