package lab
import ("testing";"context";"fmt";"os";"slices";"time";"strings"
"github.com/slowray/slowray/lab/sandbox")
func TestMain(m *testing.M){ InitMain(); os.Exit(m.Run()) }
func TestDbg(t *testing.T){
 for _,drop:=range strings.Split(os.Getenv("DROP"),","){
 r,err:=open(context.Background(),"nginx-throughput",Options{}); if err!=nil{t.Fatal(err)}
 fs:=slices.Clone(r.Faults)
 for n,f:=range fs { if f.Name==drop { fs=slices.Delete(fs,n,n+1);break } }
 tr:=trial{runner:r,faults:fs,window:5*time.Second,warm:1500*time.Millisecond,after:time.Second/2}
 tr.watch=func(ctx context.Context,b *sandbox.Box)error{
  for i:=0;i<3;i++{ 
  o,_:=b.Server.Output(ctx,"sh","-c","conntrack -L 2>/dev/null | awk '{k=$4\" \"($5~/127/?\"lo\":\"cli\")\" \"($0~/ASSURED/?\"A\":\"-\"); c[k]++} END{for(k in c)print k,c[k]}' | sort; conntrack -S|tr -s ' '; ss -s|sed -n 2p; tail -1 "+b.Dir+"/nginx-error.log; nstat -az TcpExtListenOverflows TcpExtListenDrops | tail -2; wc -l "+b.Dir+"/*.log; cut -d' ' -f9 "+b.Dir+"/nginx-access.log|sort|uniq -c; cut -c20-50 "+b.Dir+"/nginx-error.log|sed 's/[0-9#*]//g'|sort|uniq -c; sed 's/.*failed/failed/;s/while.*//' "+b.Dir+"/nginx-error.log|sort|uniq -c|sort -rn|head -5")
  fmt.Println("--",drop,i); fmt.Println(o); time.Sleep(1500*time.Millisecond)}
  return nil}
 s,err:=tr.run(context.Background()); fmt.Println(s.Rates,s.Outcome,err)
 r.lock.Release()
 }
}
