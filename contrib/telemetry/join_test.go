package telemetry_test

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/dedup"
)

// Join calls every hook of all observers that have it, including hooks that are added later.
func TestJoin(t *testing.T) {
	var told []string
	observer := func(who string, has func(hook int) bool) dedup.Observer {
		var o dedup.Observer
		v := reflect.ValueOf(&o).Elem()
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; has(i) {
				v.Field(i).Set(reflect.ValueOf(func(dedup.Event) {
					told = append(told, who+"."+name)
				}))
			}
		}
		return o
	}
	always := func(int) bool { return true }
	even := func(i int) bool { return i%2 == 0 }
	both := reflect.ValueOf(telemetry.Join(observer("a", even), dedup.Observer{},
		observer("b", always)))
	for i := range both.NumField() {
		told = nil
		name := both.Type().Field(i).Name
		both.Field(i).Interface().(func(dedup.Event))(dedup.Event{})
		wanted := []string{"b." + name}
		if even(i) {
			wanted = []string{"a." + name, "b." + name}
		}
		assert.Equal(t, wanted, told, "%s told %v", name, told)
	}
}

// A hook that nobody has stays nil: otherwise its events would be made for nobody.
func TestJoinOfNothing(t *testing.T) {
	for _, o := range []dedup.Observer{telemetry.Join(),
		telemetry.Join(dedup.Observer{}, dedup.Observer{})} {
		v := reflect.ValueOf(o)
		for i := range v.NumField() {
			assert.True(t, v.Field(i).IsNil(), "%s is set", v.Type().Field(i).Name)
		}
	}
}
