package commandline

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

// Durations reads flags such as --for: 10s, 1m30s, 500ms, 7d; a number alone is
// seconds, as sleep(1) has it.
type Durations struct{}

// Decode implements kong.Mapper.
func (Durations) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok { // as in --max-age 7d
		var n float64
		if n, err = strconv.ParseFloat(days, 64); err == nil && !(n > -1e4 && n < 1e4) {
			return fmt.Errorf("%q is not a duration: give 10s, 1m30s, 500ms or 7d", text)
		}
		d = time.Duration(n * float64(24*time.Hour))
	}
	if err != nil {
		// One with ten digits or more is a mistake, and would overflow.
		n, numberErr := strconv.ParseFloat(text, 64)
		if numberErr != nil || !(n > -1e9 && n < 1e9) {
			return fmt.Errorf("%q is not a duration: give 10s, 1m30s, 500ms or 7d", text)
		}
		d = time.Duration(n * float64(time.Second))
	}
	target.Set(reflect.ValueOf(d))
	return nil
}
