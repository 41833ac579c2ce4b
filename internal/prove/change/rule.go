package change

import (
	"errors"
	"fmt"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/shell"
)

func init() {
	Register(cause.ChangeRule, kind[ruleState]{
		read: readRule, apply: applyRule, present: presentRule, undo: undoRule, commands: ruleCommands,
		whole: func(s *ruleState) bool { return s.NFT != nil || s.Legacy != nil },
	})
}

// ruleState is a rule of the firewall, in one of two shapes.
type ruleState struct {
	Place  place       `json:"place"`
	NFT    *nftOld     `json:"nft,omitempty"`
	Legacy *legacyRule `json:"legacy,omitempty"`
}

func readRule(c *cause.Change) (ruleState, string, error) {
	var s ruleState
	r := c.Rule
	if r == nil || r.Table == "" || r.Chain == "" {
		return s, "", errors.New("no firewall rule is named")
	}
	if r.Handle == 0 && r.Index == 0 {
		return s, "", fmt.Errorf("%s: it is the policy of a chain and not a rule: it is not taken away", r.Text)
	}
	var err error
	if s.Place, err = placeOf(c); err != nil {
		return s, "", fmt.Errorf("firewall rule: %w", err)
	}
	was := ""
	err = s.Place.do(func() (err error) {
		switch r.Tool {
		case "nft", "iptables-nft", "ip6tables-nft":
			s.NFT, err = readNFTRule(r)
			was = cmpText(r.Text, "the rule")
		case "iptables-legacy", "ip6tables-legacy":
			if s.Legacy, err = readLegacyRule(r); err == nil {
				was = s.Legacy.Line
			}
		default:
			err = fmt.Errorf("rules of %q cannot be changed by this version", r.Tool)
		}
		return err
	})
	return s, was, ruleError(c, err)
}

func ruleError(c *cause.Change, err error) error {
	if err == nil || errors.Is(err, ErrGone) || c.Rule == nil {
		return err
	}
	return fmt.Errorf("firewall rule in %s: %w", chainText(c.Rule.Family, c.Rule.Table, c.Rule.Chain), err)
}

func applyRule(c *cause.Change, s *ruleState) error {
	return ruleError(c, s.Place.do(func() error {
		if s.Legacy != nil {
			return s.Legacy.remove()
		}
		return s.NFT.remove()
	}))
}

func presentRule(c *cause.Change, s *ruleState) (changeState, string, error) {
	there := false
	err := s.Place.do(func() (err error) {
		if s.Legacy != nil {
			there, err = s.Legacy.present()
		} else {
			there, err = s.NFT.present()
		}
		return err
	})
	switch {
	case err != nil:
		return foreign, "", ruleError(c, err)
	case there:
		return before, "", nil
	}
	return holds, "", nil
}

func undoRule(c *cause.Change, s *ruleState) error {
	return ruleError(c, s.Place.do(func() error {
		if s.Legacy != nil {
			return s.Legacy.restore()
		}
		return s.NFT.restore()
	}))
}

func ruleCommands(c *cause.Change, s *ruleState) (do, undo []shell.Command) {
	prefix := s.Place.prefix()
	switch {
	case s.Legacy != nil:
		d, u := s.Legacy.commands()
		return []shell.Command{prefix.Then(d)}, []shell.Command{prefix.Then(u)}
	case s.NFT != nil && c.Rule != nil:
		chain := shell.Line("%s %s %s", shell.NFT(cmpText(c.Rule.Family, "ip")), shell.NFT(s.NFT.Table), shell.NFT(s.NFT.Chain))
		do = []shell.Command{prefix.Then(shell.Line("nft delete rule")).Then(chain).Then(shell.Line("handle %s", s.NFT.Rule.Handle))}
		switch {
		case len(s.NFT.Before) > 0:
			undo = []shell.Command{prefix.Then(shell.Line("nft add rule")).Then(chain).Then(shell.Line("position %s %s", s.NFT.Before[0].Handle, shell.NFTRule(c.Rule.Text)))}
		default:
			undo = []shell.Command{prefix.Then(shell.Line("nft insert rule")).Then(chain).Then(shell.Line("%s", shell.NFTRule(c.Rule.Text)))}
		}
	}
	return do, undo
}
