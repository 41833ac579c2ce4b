package workload

// pool keeps values once, by number, for as long as somebody holds them. Number 0 is the
// zero value, which nobody has to hold.
type pool[K comparable] struct {
	ids   map[K]uint32
	items []held[K]
	free  []uint32
}

type held[K comparable] struct {
	value K
	holds uint32
}

// hold is the number of a value, which release gives back. fresh says that nobody held it.
func (p *pool[K]) hold(value K) (id uint32, fresh bool) {
	var zero K
	if value == zero {
		return 0, false
	}
	if id, ok := p.ids[value]; ok {
		p.items[id].holds++
		return id, false
	}
	if p.ids == nil {
		p.ids, p.items = map[K]uint32{}, make([]held[K], 1)
	}
	if n := len(p.free); n > 0 {
		id, p.free = p.free[n-1], p.free[:n-1]
		p.items[id] = held[K]{value, 1}
	} else {
		id = uint32(len(p.items))
		p.items = append(p.items, held[K]{value, 1})
	}
	p.ids[value] = id
	return id, true
}

// of is the value of a number.
func (p *pool[K]) of(id uint32) (value K) {
	if id != 0 {
		value = p.items[id].value
	}
	return value
}

// release gives a number back; gone says that nobody holds the value any more.
func (p *pool[K]) release(id uint32) (value K, gone bool) {
	if id == 0 {
		return value, false
	}
	item := &p.items[id]
	if item.holds--; item.holds > 0 {
		return item.value, false
	}
	value = item.value
	delete(p.ids, value)
	*item = held[K]{}
	p.free = append(p.free, id)
	return value, true
}
