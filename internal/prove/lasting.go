// Package prove holds what its parts share: how changes are made to last.
//
// In: changes, as causes declare them. Out: words. It touches nothing.
package prove

import (
	"fmt"
	"strings"

	"github.com/slowray/slowray/internal/cause"
)

// Lasting says how to make changes permanent that were made on the running system:
// one line for each, in the order given. A change that lasts by itself says so.
func Lasting(changes []cause.Change) []string {
	var list []string
	for i := range changes {
		list = append(list, lasting(&changes[i]))
	}
	return list
}

func lasting(c *cause.Change) string {
	switch c.Kind {
	case cause.ChangeSysctl:
		line := fmt.Sprintf("echo '%s = %s' >> /etc/sysctl.d/90-slowray.conf", c.Name, c.Value)
		if c.NetNS != 0 {
			return fmt.Sprintf("%s = %s, where network namespace %d is made (a container: --sysctl %[1]s=%[4]s; a host's own: %[5]s)",
				c.Name, c.Value, c.NetNS, strings.ReplaceAll(c.Value, "\t", " "), line)
		}
		return line
	case cause.ChangeBacklog:
		return fmt.Sprintf("a backlog of %s for %s in the server's configuration (nginx: listen … backlog=%[1]s; php-fpm: listen.backlog = %[1]s)", c.Value, address(c))
	case cause.ChangeSocketOption:
		return fmt.Sprintf("%s %s, set by the program itself on its sockets", c.Name, c.Value)
	case cause.ChangeRlimit:
		return fmt.Sprintf("Limit%s=%s in the [Service] section of the unit of process %d (systemctl edit), or in /etc/security/limits.d", strings.ToUpper(c.Name), c.Value, c.PID)
	case cause.ChangePipeSize:
		return fmt.Sprintf("a capacity of %s bytes, set with F_SETPIPE_SZ by the program that makes the pipe", c.Value)
	case cause.ChangeCgroup:
		return fmt.Sprintf("%s %s for the control group %s: in its unit (systemctl set-property) or container", c.Name, c.Value, c.Path)
	case cause.ChangeAffinity:
		return fmt.Sprintf("CPUAffinity=%s in the [Service] section of the unit of process %d (systemctl edit)", c.Value, c.PID)
	case cause.ChangeNice:
		return fmt.Sprintf("Nice=%s in the [Service] section of the unit of process %d (systemctl edit)", c.Value, c.PID)
	case cause.ChangeMTU:
		return fmt.Sprintf("MTU %s in the network configuration of %s", c.Value, c.Interface)
	case cause.ChangeQdisc:
		if c.Value == "" {
			return fmt.Sprintf("no queueing discipline at %s of %s: take it out of whatever sets it at boot", c.Name, c.Interface)
		}
		return fmt.Sprintf("%s at %s of %s, in the network configuration", c.Value, c.Name, c.Interface)
	case cause.ChangeRule:
		return "take it out of the saved rules of the firewall: " + ruleText(c)
	case cause.ChangeFilter:
		return fmt.Sprintf("take it out of whatever attaches it to %s at boot: %s", c.Interface, ruleText(c))
	case cause.ChangeFile:
		return fmt.Sprintf("%s in %s at boot (systemd-tmpfiles, or a udev rule)", c.Value, c.Path)
	case cause.ChangeContinue:
		return fmt.Sprintf("process %d goes on: nothing to do, but find out who stopped it", c.PID)
	case cause.ChangeConfig:
		return fmt.Sprintf("%s %s is in %s already: nothing to do", c.Name, c.Value, c.Path)
	case cause.ChangeSetting:
		return fmt.Sprintf("%s = %s in the configuration file of %s", c.Name, c.Value, c.Server)
	}
	return c.Text
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

func ruleText(c *cause.Change) string {
	if c.Rule == nil {
		return c.Text
	}
	return c.Rule.Text
}
