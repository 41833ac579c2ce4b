package change

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/nl"
)

// nftOld is a rule of nftables and where it was.
type nftOld struct {
	Family byte         `json:"family"`
	Table  string       `json:"table"`
	Chain  string       `json:"chain"`
	Made   [2]uint64    `json:"made"` // numbers of the table and the chain
	Rule   nftRule      `json:"rule"`
	Alike  int          `json:"alike"` // rules of the chain that say the same, with it
	Sets   []setMessage `json:"sets,omitempty"`
	// Before and After are its neighbours, the nearest first.
	Before []neighbour `json:"before,omitempty"`
	After  []neighbour `json:"after,omitempty"`
}

// neighbour is another rule of the chain. One that was taken away and put back
// has another handle and says the same.
type neighbour struct {
	Handle uint64 `json:"handle"`
	Print  string `json:"print"`
}

// maxNeighbours is how many are kept on each side.
const maxNeighbours = 16

func (o *nftOld) chain() nftChain { return nftChain{o.Family, o.Table, o.Chain} }

// nfnetlink opens the socket in the thread's namespace.
func nfnetlink() (*netlinkSocket, error) {
	sock, err := openNetlink(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", refused(err, "CAP_NET_ADMIN"))
	}
	return sock, nil
}

func readNFTRule(r *cause.Rule) (*nftOld, error) {
	family, ok := nftFamilies[r.Family]
	if !ok {
		return nil, fmt.Errorf("%q is not a family of nftables", r.Family)
	}
	sock, err := nfnetlink()
	if err != nil {
		return nil, err
	}
	defer sock.Close()
	o := &nftOld{Family: family, Table: r.Table, Chain: r.Chain}
	if o.Made, err = o.chain().identity(sock); err != nil {
		return nil, refused(err, "CAP_NET_ADMIN")
	}
	if o.Made[1] == 0 {
		return nil, errors.New("there is no such chain")
	}
	rules, err := o.chain().rules(sock)
	if err != nil {
		return nil, refused(err, "CAP_NET_ADMIN")
	}
	at := -1
	for i := range rules {
		if r.Handle != 0 && rules[i].Handle == r.Handle || r.Handle == 0 && i+1 == r.Index {
			at = i
		}
	}
	if at < 0 {
		return nil, fmt.Errorf("there is no rule with handle %d any more", r.Handle)
	}
	o.Rule = rules[at]
	if o.Rule.bindsChain() {
		return nil, errors.New("it jumps to a chain without a name, which would go with it: not taken away")
	}
	if o.Sets, err = o.chain().anonymous(sock, &o.Rule); err != nil {
		return nil, fmt.Errorf("sets of the rule: %w", err)
	}
	o.look(rules, at)
	return o, o.rehearse(sock)
}

// look notes the neighbours of the rule at a place, and how many there are like it.
func (o *nftOld) look(rules []nftRule, at int) {
	for i := at - 1; i >= 0 && len(o.Before) < maxNeighbours; i-- {
		o.Before = append(o.Before, neighbour{rules[i].Handle, rules[i].print()})
	}
	for i := at + 1; i < len(rules) && len(o.After) < maxNeighbours; i++ {
		o.After = append(o.After, neighbour{rules[i].Handle, rules[i].print()})
	}
	o.Alike = o.alike(rules)
}

func (o *nftOld) alike(rules []nftRule) int {
	n, print := 0, o.Rule.print()
	for i := range rules {
		if rules[i].print() == print {
			n++
		}
	}
	return n
}

// rehearse has the kernel check that the rule can be taken away and put back
// word for word, and changes nothing.
func (o *nftOld) rehearse(sock *netlinkSocket) error {
	c := o.chain()
	after, ahead := uint64(0), uint64(0)
	if len(o.Before) > 0 {
		after = o.Before[0].Handle
	} else if len(o.After) > 0 {
		ahead = o.After[0].Handle
	}
	err := sock.batch(append([]nl.Message{c.remove(o.Rule.Handle)}, c.insert(&o.Rule, o.Sets, after, ahead)...), false)
	switch {
	case errors.Is(err, unix.EPERM):
		return refused(err, "CAP_NET_ADMIN")
	case err != nil:
		return fmt.Errorf("the kernel would not take it back as it is (%w): not taken away", err)
	}
	return nil
}

func (o *nftOld) remove() error {
	sock, err := nfnetlink()
	if err != nil {
		return err
	}
	defer sock.Close()
	err = sock.batch([]nl.Message{o.chain().remove(o.Rule.Handle)}, true)
	if errors.Is(err, unix.ENOENT) {
		return ErrGone
	}
	return refused(err, "CAP_NET_ADMIN")
}

// current is the rules of the chain; ErrGone when it is not the same chain.
func (o *nftOld) current(sock *netlinkSocket) ([]nftRule, error) {
	made, err := o.chain().identity(sock)
	if err != nil {
		return nil, err
	}
	if made != o.Made {
		return nil, ErrGone
	}
	return o.chain().rules(sock)
}

func (o *nftOld) present() (bool, error) {
	sock, err := nfnetlink()
	if err != nil {
		return false, err
	}
	defer sock.Close()
	rules, err := o.current(sock)
	return err == nil && o.alike(rules) >= o.Alike, err
}

func (o *nftOld) restore() error {
	sock, err := nfnetlink()
	if err != nil {
		return err
	}
	defer sock.Close()
	rules, err := o.current(sock)
	if err != nil || o.alike(rules) >= o.Alike {
		return err
	}
	after, ahead := o.position(rules)
	if err := sock.batch(o.chain().insert(&o.Rule, o.Sets, after, ahead), true); err != nil {
		return fmt.Errorf("put back: %w", refused(err, "CAP_NET_ADMIN"))
	}
	rules, err = o.current(sock)
	if err == nil && o.alike(rules) < o.Alike {
		err = errors.New("it was put back and reads differently")
	}
	return err
}

// position finds the place between the neighbours that are left.
func (o *nftOld) position(rules []nftRule) (after, ahead uint64) {
	byHandle, byPrint := map[uint64]bool{}, map[string][]uint64{}
	for i := range rules {
		byHandle[rules[i].Handle] = true
		p := rules[i].print()
		byPrint[p] = append(byPrint[p], rules[i].Handle)
	}
	there := func(n neighbour) uint64 {
		if byHandle[n.Handle] {
			return n.Handle
		}
		if same := byPrint[n.Print]; len(same) == 1 {
			return same[0]
		}
		return 0
	}
	for i := range max(len(o.Before), len(o.After)) {
		if i < len(o.Before) {
			if h := there(o.Before[i]); h != 0 {
				return h, 0
			}
		}
		if i < len(o.After) {
			if h := there(o.After[i]); h != 0 {
				return 0, h
			}
		}
	}
	if len(o.Before) > 0 && len(rules) > 0 {
		return rules[len(rules)-1].Handle, 0
	}
	return 0, 0
}
