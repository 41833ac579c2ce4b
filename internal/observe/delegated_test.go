package observe

import "testing"

func TestUsersOwn(t *testing.T) {
	const id = "ad49d63859ffb11d97fdb11db98244a45824867dab08337aa5daac64a2f0bd74"
	for path, want := range map[string]bool{
		"/user.slice/user-1000.slice/user@1000.service/kubepods/burstable/pod5cb27aa3/" + id: true,
		"/kubepods/burstable/pod5cb27aa3/" + id:                                              false,
		"/kubepods.slice/kubepods-pod5cb27aa3.slice/cri-containerd-" + id + ".scope":         false,
		"/system.slice/user@x": false, "/": false, "": false,
	} {
		if UsersOwn(path) != want {
			t.Errorf("%s: %t", path, !want)
		}
	}
	k := &Kubernetes{Pods: []Pod{{Name: "cart-1", Namespace: "shop", Containers: []PodContainer{{ID: id[:12]}}}}}
	if k.WorkloadOf(id[:12], "/kubepods/pod1/"+id) == nil || k.WorkloadOf(id[:12], "/user.slice/user@7.service/kubepods/pod1/"+id) != nil {
		t.Error("who is in a pod is not, or who says so is")
	}
}
