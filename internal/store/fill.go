package store

import (
	"errors"
	"io"
	"reflect"
	"unsafe"
)

var errDamaged = errors.New("damaged")

// fill writes the next values of the column into n rows, each size bytes long.
func (c *column) fill(rows unsafe.Pointer, size uintptr, n int) error {
	if c.list != nil {
		return c.fillList(rows, size, n)
	}
	for done := 0; done < n; {
		if c.at == c.n {
			if err := c.next(); err != nil {
				return err
			}
		}
		k := min(n-done, c.n-c.at)
		if k == 0 {
			return errDamaged
		}
		if err := c.copy(unsafe.Add(rows, uintptr(done)*size+c.offset), size, k); err != nil {
			return err
		}
		done += k
	}
	return nil
}

// copy writes k values that the page has, each size bytes after the one before.
// No pointer is ever made to what lies after the last row: the garbage collector
// does not stand for it.
func (c *column) copy(to unsafe.Pointer, size uintptr, k int) error {
	from := c.at
	c.at += k
	switch {
	case c.index != nil:
		return c.copyIndexed(to, size, c.index[from:from+k])
	case c.kind == reflect.Int64:
		for i, v := range c.ints[from : from+k] {
			*(*int64)(unsafe.Add(to, uintptr(i)*size)) = v
		}
	case c.kind == reflect.Int32:
		for i, v := range c.smalls[from : from+k] {
			*(*int32)(unsafe.Add(to, uintptr(i)*size)) = v
		}
	case c.kind == reflect.Float64:
		for i := range k {
			*(*float64)(unsafe.Add(to, uintptr(i)*size)) = realAt(c.floats, from+i)
		}
	case c.kind == reflect.Bool:
		for i := range k {
			bit := from + i
			*(*bool)(unsafe.Add(to, uintptr(i)*size)) = c.bits[bit/8]>>(bit%8)&1 != 0
		}
	default:
		for i := range k {
			*(*string)(unsafe.Add(to, uintptr(i)*size)) = c.textAt(from + i)
		}
	}
	return nil
}

func (c *column) copyIndexed(to unsafe.Pointer, size uintptr, index []int32) error {
	known := len(c.texts)
	switch c.kind {
	case reflect.Int64:
		known = len(c.longs)
	case reflect.Float64:
		known = len(c.reals)
	}
	for row, i := range index {
		if uint(i) >= uint(known) {
			return errDamaged
		}
		at := unsafe.Add(to, uintptr(row)*size)
		switch c.kind {
		case reflect.Int64:
			*(*int64)(at) = c.longs[i]
		case reflect.Float64:
			*(*float64)(at) = c.reals[i]
		default:
			*(*string)(at) = c.texts[i]
		}
	}
	return nil
}

// fillList writes a leaf of the lists of n rows. The first leaf makes the lists,
// the others must be as long.
func (c *column) fillList(rows unsafe.Pointer, size uintptr, n int) error {
	lengths, err := c.lengths(n)
	if err != nil {
		return err
	}
	type header struct {
		data     unsafe.Pointer
		len, cap int
	}
	total := 0
	for _, k := range lengths {
		total += k
	}
	if total == 0 {
		return nil
	}
	width := c.list.elem.Size()
	list := reflect.SliceOf(c.list.elem)
	used := 0
	c.given = 0
	for i, k := range lengths {
		at := unsafe.Add(rows, uintptr(i)*size+c.offset)
		h := (*header)(at)
		if k > 0 && h.len == 0 {
			if !c.room.IsValid() || c.room.Len() < total {
				c.room = reflect.MakeSlice(list, total+total/4, total+total/4)
			}
			reflect.NewAt(list, at).Elem().Set(c.room.Slice3(used, used+k, used+k))
			used += k
		}
		if h.len != k {
			return errDamaged
		}
		if k > 0 {
			c.take(unsafe.Add(h.data, c.list.leaf), width, k)
		}
	}
	return nil
}

// lengths tells how long the lists of the next n rows are, and keeps their
// values.
func (c *column) lengths(n int) ([]int, error) {
	lengths, kept := c.sizes[:0], 0
	defer func() { c.sizes = lengths }()
	c.keptInts, c.keptReals, c.keptTexts = c.keptInts[:0], c.keptReals[:0], c.keptTexts[:0]
	for {
		if c.level == len(c.rep) {
			err := c.next()
			if errors.Is(err, io.ErrUnexpectedEOF) && len(lengths) == n {
				return lengths, nil
			}
			if err != nil {
				return nil, err
			}
			if len(c.rep) != len(c.def) || len(c.rep) == 0 {
				return nil, errDamaged
			}
		}
		if c.rep[c.level] == 0 {
			if len(lengths) == n {
				return lengths, nil
			}
			lengths = append(lengths, 0)
		} else if len(lengths) == 0 {
			return nil, errDamaged
		}
		if c.def[c.level] == 1 {
			if kept++; c.at >= c.n || kept > maxPageValues {
				return nil, errDamaged
			}
			lengths[len(lengths)-1]++
			if err := c.keep(c.at); err != nil {
				return nil, err
			}
			c.at++
		}
		c.level++
	}
}

// keep keeps value i of the page, of a list.
func (c *column) keep(i int) error {
	if c.index != nil {
		at := uint(c.index[i])
		switch {
		case c.kind == reflect.Int64 && at < uint(len(c.longs)):
			c.keptInts = append(c.keptInts, c.longs[at])
		case c.kind == reflect.Float64 && at < uint(len(c.reals)):
			c.keptReals = append(c.keptReals, c.reals[at])
		case c.kind == reflect.String && at < uint(len(c.texts)):
			c.keptTexts = append(c.keptTexts, c.texts[at])
		default:
			return errDamaged
		}
		return nil
	}
	switch c.kind {
	case reflect.Int64:
		c.keptInts = append(c.keptInts, c.ints[i])
	case reflect.Float64:
		c.keptReals = append(c.keptReals, realAt(c.floats, i))
	case reflect.String:
		c.keptTexts = append(c.keptTexts, c.textAt(i))
	default:
		return errForeign
	}
	return nil
}

// take writes the next k values that were kept.
func (c *column) take(to unsafe.Pointer, size uintptr, k int) {
	from := c.given
	c.given += k
	switch c.kind {
	case reflect.Int64:
		for i, v := range c.keptInts[from : from+k] {
			*(*int64)(unsafe.Add(to, uintptr(i)*size)) = v
		}
	case reflect.Float64:
		for i, v := range c.keptReals[from : from+k] {
			*(*float64)(unsafe.Add(to, uintptr(i)*size)) = v
		}
	default:
		for i, v := range c.keptTexts[from : from+k] {
			*(*string)(unsafe.Add(to, uintptr(i)*size)) = v
		}
	}
}
