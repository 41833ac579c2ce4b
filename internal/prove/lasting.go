// Package prove holds what its parts share: how changes are made to last.
//
// In: changes, as causes declare them. Out: commands and notes. It touches nothing.
package prove

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/cause"
	"github.com/slowray/slowray/internal/shell"
)

// Lasting says how to make changes permanent that were made on the running system:
// one line for each, in the order given. A change that lasts by itself says so.
func Lasting(changes []cause.Change) []shell.Command {
	var list []shell.Command
	for i := range changes {
		list = append(list, lasting(&changes[i]))
	}
	return list
}

func lasting(c *cause.Change) shell.Command {
	switch c.Kind {
	case cause.ChangeSysctl:
		value := strings.Join(strings.Fields(c.Value), " ")
		setting := shell.Line("%s", shell.Sysctl(c.Name+" = "+value))
		if c.NetNS != 0 && !setting.IsNote() {
			return shell.Line("# %s = %s where network namespace %s is made: for a container --sysctl %s, for a host a line in /etc/sysctl.d/90-slowray.conf",
				c.Name, shell.Text(value), c.NetNS, c.Name+"="+value)
		}
		return cause.LastingSysctl(c.Name, value)
	case cause.ChangeBacklog:
		return shell.Line("# a backlog of %s for %s in the configuration of the server (nginx: listen … backlog=%s, php-fpm: listen.backlog = %s)", c.Value, address(c), c.Value, c.Value)
	case cause.ChangeSocketOption:
		return shell.Line("# %s %s, set by the program itself on its sockets", c.Name, c.Value)
	case cause.ChangeRlimit:
		return shell.Line("# Limit%s=%s in the [Service] section of the unit of process %s (systemctl edit), or in /etc/security/limits.d", strings.ToUpper(c.Name), c.Value, c.PID)
	case cause.ChangePipeSize:
		return shell.Line("# a capacity of %s bytes, set with F_SETPIPE_SZ by the program that makes the pipe", c.Value)
	case cause.ChangeCgroup:
		return shell.Line("# %s %s for the control group %s: in its unit (systemctl set-property) or container", c.Name, shell.Text(c.Value), c.Path)
	case cause.ChangeAffinity:
		return shell.Line("# CPUAffinity=%s in the [Service] section of the unit of process %s (systemctl edit)", c.Value, c.PID)
	case cause.ChangeNice:
		return shell.Line("# Nice=%s in the [Service] section of the unit of process %s (systemctl edit)", c.Value, c.PID)
	case cause.ChangeMTU:
		return shell.Line("# MTU %s in the network configuration of %s", c.Value, c.Interface)
	case cause.ChangeQdisc:
		if c.Value == "" {
			return shell.Line("# no queueing discipline at %s of %s: take it out of whatever sets it at boot", shell.Text(c.Name), c.Interface)
		}
		return shell.Line("# %s at %s of %s, in the network configuration", shell.Text(c.Value), shell.Text(c.Name), c.Interface)
	case cause.ChangeRule:
		return shell.Line("# take it out of the saved rules of the firewall: %s", ruleText(c))
	case cause.ChangeFilter:
		return shell.Line("# take it out of whatever attaches it to %s at boot: %s", c.Interface, ruleText(c))
	case cause.ChangeFile:
		return shell.Line("# %s in %s at boot (systemd-tmpfiles, or a udev rule)", shell.Text(c.Value), c.Path)
	case cause.ChangeContinue:
		return shell.Line("# process %s goes on: nothing to do, but find out who stopped it", c.PID)
	case cause.ChangeConfig:
		return shell.Line("# %s %s is in %s already: nothing to do", c.Name, shell.Text(c.Value), c.Path)
	case cause.ChangeSetting:
		return shell.Line("# %s = %s in the configuration file of %s", c.Name, shell.Text(c.Value), c.Server)
	}
	return shell.Line("# %s", shell.Text(c.Text))
}

// address is where a socket listens.
func address(c *cause.Change) string {
	if c.Path != "" {
		return c.Path
	}
	if strings.Contains(c.Addr, ":") {
		return fmt.Sprintf("[%s]:%d", c.Addr, c.Port)
	}
	return fmt.Sprintf("%s:%d", c.Addr, c.Port)
}

func ruleText(c *cause.Change) shell.Text {
	if c.Rule == nil {
		return shell.Text(c.Text)
	}
	return shell.Text(c.Rule.Text)
}
