//! scratch
use std::{collections::BTreeMap, sync::{Arc, Mutex}, time::Duration};
use tokio::{net::TcpListener, sync::watch, io::{AsyncReadExt, AsyncWriteExt}};
use wire::{envoy::config::core::v3::Node, google::protobuf::Any};
use wire::envoy::config::{cluster::v3 as c, endpoint::v3 as e, listener::v3 as l, route::v3 as r, core::v3 as core};
use wire::envoy::extensions::filters::network::http_connection_manager::v3 as hcm;
use wire::envoy::extensions::filters::http::router::v3::Router;
use xds::*;
struct Inner { seq: u64, live: BTreeMap<(TypeUrl,String),(u64,Arc<Resource>)>, gone: BTreeMap<(TypeUrl,String),u64> }
#[derive(Clone)] struct Mesh(Arc<(Mutex<Inner>, watch::Sender<u64>)>);
impl Mesh { fn set(&self, k: TypeUrl, n: &str, any: Any) { let mut i=self.0.0.lock().unwrap(); i.seq+=1; let s=i.seq; let v=format!("v{s}"); i.live.insert((k,n.into()),(s,Arc::new(Resource::new(n.into(),v.into(),any,vec![])))); drop(i); self.0.1.send_replace(s);} 
 fn del(&self, k: TypeUrl, n:&str){ let mut i=self.0.0.lock().unwrap(); i.seq+=1; let s=i.seq; i.live.remove(&(k,n.to_string())); i.gone.insert((k,n.into()),s); drop(i); self.0.1.send_replace(s);} }
impl Provider for Mesh { fn ready(&self)->bool{true} fn join(&self,n:&Node)->Result<Joined,Refused>{Ok(Joined{class:Arc::new(self.clone()),proxy:ProxyInfo{id:n.id.clone(),..Default::default()}})} fn changed(&self)->watch::Receiver<u64>{self.0.1.subscribe()} }
impl Class for Mesh { fn since(&self,k:TypeUrl,s:u64)->Arc<Changes>{let i=self.0.0.lock().unwrap(); Arc::new(Changes{seq:i.seq,changed:i.live.iter().filter(|((a,_),(q,_))|*a==k&&*q>s).map(|(_,(_,r))|r.clone()).collect(),removed:i.gone.iter().filter(|((a,_),q)|*a==k&&**q>s&&s>0).map(|((_,n),_)|Arc::from(n.as_str())).collect(),full:s==0,began:None})}
 fn named(&self,k:TypeUrl,n:&str)->Option<Arc<Resource>>{let i=self.0.0.lock().unwrap(); i.live.get(&(k,n.to_string())).map(|(_,r)|r.clone()).or_else(||(k==TypeUrl::Endpoints).then(||Arc::new(Resource::new(n.into(),"empty".into(),wire::any::pack(&e::ClusterLoadAssignment{cluster_name:n.into(),..Default::default()}),vec![]))))} }
fn ads()->core::ConfigSource{core::ConfigSource{resource_api_version:2,config_source_specifier:Some(core::config_source::ConfigSourceSpecifier::Ads(Default::default())),..Default::default()}}
fn addr(p:u32)->core::Address{core::Address{address:Some(core::address::Address::SocketAddress(core::SocketAddress{address:"127.0.0.1".into(),port_specifier:Some(core::socket_address::PortSpecifier::PortValue(p)),..Default::default()}))}}
fn cluster(n:&str,t:i64)->Any{wire::any::pack(&c::Cluster{name:n.into(),connect_timeout:Some(wire::google::protobuf::Duration{seconds:t,nanos:0}),cluster_discovery_type:Some(c::cluster::ClusterDiscoveryType::Type(3)),eds_cluster_config:Some(c::cluster::EdsClusterConfig{eds_config:Some(ads()),service_name:n.into()}),..Default::default()})}
fn cla(n:&str,p:u32)->Any{wire::any::pack(&e::ClusterLoadAssignment{cluster_name:n.into(),endpoints:vec![e::LocalityLbEndpoints{lb_endpoints:vec![e::LbEndpoint{host_identifier:Some(e::lb_endpoint::HostIdentifier::Endpoint(e::Endpoint{address:Some(addr(p)),..Default::default()})),..Default::default()}],..Default::default()}],..Default::default()})}
fn route(n:&str,cl:&str)->Any{wire::any::pack(&r::RouteConfiguration{name:n.into(),virtual_hosts:vec![r::VirtualHost{name:"v".into(),domains:vec!["*".into()],routes:vec![r::Route{r#match:Some(r::RouteMatch{path_specifier:Some(r::route_match::PathSpecifier::Prefix("/".into())),..Default::default()}),action:Some(r::route::Action::Route(r::RouteAction{cluster_specifier:Some(r::route_action::ClusterSpecifier::Cluster(cl.into())),..Default::default()})),..Default::default()}],..Default::default()}],..Default::default()})}
fn listener(n:&str,p:u32,rn:&str)->Any{let h=hcm::HttpConnectionManager{stat_prefix:n.into(),route_specifier:Some(hcm::http_connection_manager::RouteSpecifier::Rds(hcm::Rds{config_source:Some(ads()),route_config_name:rn.into()})),http_filters:vec![hcm::HttpFilter{name:"envoy.filters.http.router".into(),config_type:Some(hcm::http_filter::ConfigType::TypedConfig(wire::any::pack(&Router::default()))),..Default::default()}],..Default::default()};
 wire::any::pack(&l::Listener{name:n.into(),address:Some(addr(p)),filter_chains:vec![l::FilterChain{filters:vec![l::Filter{name:"hcm".into(),config_type:Some(l::filter::ConfigType::TypedConfig(wire::any::pack(&h)))}],..Default::default()}],..Default::default()})}
async fn get(port:u16,path:&str)->String{ let Ok(mut s)=tokio::net::TcpStream::connect(("127.0.0.1",port)).await else {return "noconn".into()}; s.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).await.unwrap(); let mut b=vec![]; let _=s.read_to_end(&mut b).await; String::from_utf8_lossy(&b).into_owned()}
fn stat(all:&str, keys:&[&str])->String{ all.lines().filter(|l|keys.iter().any(|k|l.contains(k))).collect::<Vec<_>>().join("\n   ") }
async fn upstream(text:&'static str)->u32{ let l=TcpListener::bind("127.0.0.1:0").await.unwrap(); let p=l.local_addr().unwrap().port(); tokio::spawn(async move{loop{let (mut s,_)=l.accept().await.unwrap(); tokio::spawn(async move{let mut b=[0;4096]; while let Ok(n)=s.read(&mut b).await { if n==0{break} let _=s.write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{text}",text.len()).as_bytes()).await; }});}}); p as u32}
#[tokio::test(flavor="multi_thread")]
async fn envoy() { for delta in [true,false] {
  let a=upstream("from-a").await; let b=upstream("from-b").await;
  let mesh=Mesh(Arc::new((Mutex::new(Inner{seq:0,live:BTreeMap::new(),gone:BTreeMap::new()}),watch::Sender::new(0))));
  let (lp,ap)=if delta {(19180u32,19190u16)} else {(19181,19191)};
  mesh.set(TypeUrl::Cluster,"a",cluster("a",1)); mesh.set(TypeUrl::Cluster,"b",cluster("b",1)); mesh.set(TypeUrl::Endpoints,"a",cla("a",a)); mesh.set(TypeUrl::Route,"r",route("r","a")); mesh.set(TypeUrl::Listener,"l",listener("l",lp,"r"));
  let ls=TcpListener::bind("127.0.0.1:0").await.unwrap(); let port=ls.local_addr().unwrap().port();
  let reg=prometheus::Registry::new(); let conns=Connections::new();
  let server=Server::new(Arc::new(mesh.clone()),Options{max_age:Some(Duration::from_secs(8)),drain:Duration::from_secs(3),..Options::default()},Metrics::new(&reg).unwrap(),conns.clone());
  let (tx,rx)=tokio::sync::oneshot::channel::<()>();
  let h=tokio::spawn(async move{server.serve(ls,async{let _=rx.await;}).await});
  let api=if delta {"DELTA_GRPC"} else {"GRPC"};
  let boot=format!(r#"{{"node":{{"id":"sidecar~1~x.y~z","cluster":"c"}},"admin":{{"address":{{"socket_address":{{"address":"127.0.0.1","port_value":{ap}}}}}}},"dynamic_resources":{{"ads_config":{{"api_type":"{api}","transport_api_version":"V3","set_node_on_first_message_only":true,"grpc_services":[{{"envoy_grpc":{{"cluster_name":"xds"}}}}]}},"cds_config":{{"ads":{{}},"resource_api_version":"V3","initial_fetch_timeout":"0s"}},"lds_config":{{"ads":{{}},"resource_api_version":"V3","initial_fetch_timeout":"0s"}}}},"static_resources":{{"clusters":[{{"name":"xds","type":"STATIC","connect_timeout":"1s","typed_extension_protocol_options":{{"envoy.extensions.upstreams.http.v3.HttpProtocolOptions":{{"@type":"type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions","explicit_http_config":{{"http2_protocol_options":{{}}}}}}}},"load_assignment":{{"cluster_name":"xds","endpoints":[{{"lb_endpoints":[{{"endpoint":{{"address":{{"socket_address":{{"address":"127.0.0.1","port_value":{port}}}}}}}}}]}}]}}}}]}}}}"#);
  let mut child=tokio::process::Command::new(std::env::var("ENVOY").unwrap()).args(["--config-yaml",&boot,"--use-dynamic-base-id","-l","warning","--concurrency","1"]).kill_on_drop(true).spawn().unwrap();
  for _ in 0..50 { tokio::time::sleep(Duration::from_millis(100)).await; if get(lp as u16,"/").await.contains("from-a"){break} }
  let show=async |what:&str|{ let s=get(ap,"/stats").await; let table=conns.snapshot().iter().map(|c|format!("{} {:?}",c.id,c.watched.iter().map(|w|format!("{}:{:?}",w.kind.short(),w.status())).collect::<Vec<_>>())).collect::<Vec<_>>(); println!("== {api} {what}: {}\n   {}\n   {table:?}", get(lp as u16,"/").await.lines().last().unwrap_or(""), stat(&s,&["cds.update_success","cds.update_rejected","lds.update_success","lds.update_rejected","warming_clusters","total_listeners_warming","total_listeners_active","rds.r.update_success","cluster.a.update_success","cluster.a.init_fetch_timeout","active_clusters"])); };
  show("start").await;
  mesh.set(TypeUrl::Cluster,"a",cluster("a",2)); tokio::time::sleep(Duration::from_secs(1)).await; show("cluster a edited").await;
  mesh.set(TypeUrl::Endpoints,"b",cla("b",b)); mesh.set(TypeUrl::Route,"r",route("r","b")); tokio::time::sleep(Duration::from_millis(500)).await; show("route to b").await;
  mesh.del(TypeUrl::Cluster,"a"); tokio::time::sleep(Duration::from_millis(500)).await; show("a removed").await;
  mesh.set(TypeUrl::Listener,"l",listener("l",lp,"r2")); mesh.set(TypeUrl::Route,"r2",route("r2","b")); tokio::time::sleep(Duration::from_millis(500)).await; show("listener to r2").await;
  mesh.set(TypeUrl::Listener,"bad",listener("bad",70000,"r")); tokio::time::sleep(Duration::from_millis(500)).await; show("bad listener").await;
  mesh.set(TypeUrl::Cluster,"d",cluster("d",1)); mesh.del(TypeUrl::Listener,"bad"); tokio::time::sleep(Duration::from_millis(500)).await; show("bad gone").await;
  mesh.set(TypeUrl::Cluster,"b",cluster("b",3));
  tokio::time::sleep(Duration::from_secs(8)).await; mesh.set(TypeUrl::Cluster,"b",cluster("b",4)); tokio::time::sleep(Duration::from_secs(1)).await; show("after max age").await;
  let t=std::time::Instant::now(); tx.send(()).unwrap(); h.await.unwrap(); println!("drained in {:?}",t.elapsed());
  let fam=prometheus::TextEncoder::new().encode_to_string(&reg.gather()).unwrap(); println!("   {}", stat(&fam,&["pilot_xds_pushes{","handled_total{","rejects","expired"]));
  child.kill().await.unwrap();
 } }
