package host

import (
	"strings"
	"testing"
)

func TestContainerAndUnit(t *testing.T) {
	id, outer := strings.Repeat("0123456789abcdef", 4), strings.Repeat("fedcba9876543210", 4)
	for _, c := range []struct{ path, container, unit string }{
		{"/", "", ""},
		{"", "", ""},
		{"/docker/" + id, "0123456789ab", ""},
		{"/docker/" + id + "/init", "0123456789ab", ""},
		{"/system.slice/docker-" + id + ".scope", "0123456789ab", "docker-" + id + ".scope"},
		{"/system.slice/docker-" + id + ".scope/docker/" + strings.Repeat("f", 64), "ffffffffffff", "docker-" + id + ".scope"},
		{"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podaa_bb.slice/cri-containerd-" + id + ".scope", "0123456789ab", "cri-containerd-" + id + ".scope"},
		{"/kubepods/besteffort/pod3f1c4f5a-0000-4000-8000-000000000000/" + id, "0123456789ab", ""},
		{"/kubepods-burstable-podaa.slice:cri-containerd:" + id, "0123456789ab", ""},
		{"/kubepods.slice/kubepods-podaa.slice/crio-" + id + ".scope", "0123456789ab", "crio-" + id + ".scope"},
		{"/kubepods.slice/kubepods-podaa.slice/crio-conmon-" + id + ".scope", "", "crio-conmon-" + id + ".scope"},
		{"/kubepods.slice/kubepods-podaa.slice/crio-" + id + ".scope/container", "0123456789ab", "crio-" + id + ".scope"}, // crun
		{"/kubepods/burstable/pod3f1c4f5a-0000-4000-8000-000000000000/crio-" + id, "0123456789ab", ""},
		{"/kubepods.slice/kubepods-podaa.slice/docker-" + id + ".scope", "0123456789ab", "docker-" + id + ".scope"},                                                                    // cri-dockerd
		{"/docker/" + outer + "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podaa.slice/cri-containerd-" + id + ".scope", "0123456789ab", "cri-containerd-" + id + ".scope"}, // kind
		{"/docker/" + outer + "/kubelet/kubepods/besteffort/podaa/" + id, "0123456789ab", ""},
		{"/docker/" + outer + "/system.slice/kubelet.service", outer[:12], "kubelet.service"},
		{"/system.slice/docker-" + outer + ".scope/kubepods.slice/kubepods-podaa.slice/docker-" + id + ".scope", "0123456789ab", "docker-" + id + ".scope"}, // minikube
		{"/machine.slice/libpod-" + id + ".scope/container", "0123456789ab", "libpod-" + id + ".scope"},
		{"/machine.slice/libpod-conmon-" + id + ".scope", "", "libpod-conmon-" + id + ".scope"},
		{"/docker/0123456789ab", "0123456789ab", ""},
		{"/ecs/5a2b/" + id, "0123456789ab", ""},
		{"/lxc.payload.web1/init.scope", "web1", "init.scope"},
		{"/lxc/web1", "web1", ""},
		{"/process_api/719fdba45b7085e5baaf8ccecc5b0ea3", "", ""},
		{"/system.slice/php8.2-fpm.service", "", "php8.2-fpm.service"},
		{"/system.slice/php8.2-fpm.service/pool-www", "", "php8.2-fpm.service"},
		{"/user.slice/user-1000.slice/user@1000.service/app.slice/foo.service", "", "foo.service"},
		{"/user.slice/user-1000.slice/session-3.scope", "", "session-3.scope"},
	} {
		if got := ContainerOf(c.path); got != c.container {
			t.Errorf("ContainerOf(%q) = %q, want %q", c.path, got, c.container)
		}
		if got := UnitOf(c.path); got != c.unit {
			t.Errorf("UnitOf(%q) = %q, want %q", c.path, got, c.unit)
		}
	}
}
