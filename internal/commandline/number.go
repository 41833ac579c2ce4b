package commandline

import (
	"fmt"
	"reflect"
	"strconv"

	"github.com/alecthomas/kong"
)

// Numbers reads whole numbers, and says of what is none that it is none.
type Numbers struct{}

// Decode implements kong.Mapper.
func (Numbers) Decode(ctx *kong.DecodeContext, target reflect.Value) error {
	token, err := ctx.Scan.PopValue("number")
	if err != nil {
		return err
	}
	text := fmt.Sprint(token.Value)
	n, err := strconv.ParseInt(text, 10, target.Type().Bits())
	switch {
	case err == nil:
		target.SetInt(n)
		return nil
	case ctx.Value.Name == "port":
		return fmt.Errorf("%q is not a port number (1 to 65535)", text)
	}
	return fmt.Errorf("%q is not a whole number", text)
}
