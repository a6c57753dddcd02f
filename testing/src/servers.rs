//! Real servers, on free loopback ports, with their data in a directory of their own. They are
//! stopped when they are dropped. A server that cannot be started fails the test.
//!
//! `PLIMSOLL_REDIS_SERVER` is the path of another server program than `redis-server`, such as an older
//! Redis, or Valkey. `scripts/servers` downloads some.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::Duration,
};

use redis::{Client, Cmd, FromRedisValue};

/// A timeout that a busy machine does not reach, for tests that do not measure time.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Returns the server program.
pub fn program() -> String {
    std::env::var("PLIMSOLL_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned())
}

/// Returns the arguments with which a server accepts `DEBUG`. Redis 6.2 always does, and does not know
/// the option.
pub fn debug_arguments() -> &'static [&'static str] {
    let output = Command::new(program()).arg("--version").output().expect("it is installed");
    if String::from_utf8_lossy(&output.stdout).contains("v=6.") {
        &[]
    } else {
        &["--enable-debug-command", "yes"]
    }
}

pub struct Server {
    pub port: u16,
    pub dir: PathBuf,
    arguments: Vec<String>,
    /// Variables of its environment, as `NAME=value`.
    environment: Vec<String>,
    child: Option<Child>,
}

impl Server {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_in(&[], arguments)
    }

    /// Starts a server with these variables in its environment.
    pub fn start_in(environment: &[String], arguments: &[&str]) -> Self {
        let arguments: Vec<_> = arguments.iter().map(|it| (*it).to_owned()).collect();
        for _ in 0..5 {
            let (dir, arguments) = (directory(), arguments.clone());
            let environment = environment.to_vec();
            let mut server = Self { port: free_port(), dir, arguments, environment, child: None };
            if server.try_run() {
                return server;
            }
            eprintln!("port {} is in use: another one", server.port);
        }
        panic!("{} does not start", program());
    }

    /// Starts a server at this port, with exactly these arguments.
    pub fn start_bare(port: u16, arguments: &[String]) -> Self {
        let (dir, arguments) = (directory(), arguments.to_vec());
        let mut server = Self { port, dir, arguments, environment: Vec::new(), child: None };
        server.run_bare();
        server
    }

    /// Runs the server, again after [`kill`](Self::kill).
    pub fn run(&mut self) {
        assert!(self.try_run(), "{} does not start on {}: {}", program(), self.port, self.log());
    }

    /// Runs the server, and returns whether it is this one that answers at the port, and not one of
    /// another process of tests that was faster.
    fn try_run(&mut self) -> bool {
        self.run_bare();
        let pid = self.child.as_ref().map(Child::id).expect("it runs").to_string();
        for _ in 0..3_000 {
            let up = self.client().get_connection_with_timeout(Duration::from_secs(1));
            if up.is_ok() {
                let info = self.try_ask::<String>("INFO server");
                return info.is_ok_and(|it| it.contains(&format!("process_id:{pid}\r\n")));
            }
            if self
                .child
                .as_mut()
                .is_some_and(|child| child.try_wait().is_ok_and(|it| it.is_some()))
            {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }

    fn run_bare(&mut self) {
        // A file that may not grow is an error to report then, and not the end.
        let mut command = Command::new("env");
        command.arg("--ignore-signal=XFSZ").args(&self.environment).arg(program());
        if !self.arguments.iter().any(|argument| argument.ends_with(".conf")) {
            command.args(["--port", &self.port.to_string()]);
            command.args(["--save", "", "--appendonly", "no", "--bind", "127.0.0.1"]);
            command.args(["--dir", self.dir.to_str().expect("utf-8")]);
        }
        command.args(&self.arguments);
        let log = fs::File::create(self.dir.join("log")).expect("a log");
        let child = command.stdout(log).stderr(Stdio::null()).spawn();
        self.child = Some(child.expect("it is installed"));
    }

    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            child.kill().expect("a running child");
            child.wait().expect("a child");
        }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub fn client(&self) -> Client {
        Client::open(self.url()).expect("a valid address")
    }

    pub fn ask<T: FromRedisValue>(&self, command: &str) -> T {
        self.try_ask(command).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    pub fn try_ask<T: FromRedisValue>(&self, command: &str) -> redis::RedisResult<T> {
        let mut connection = self.client().get_connection()?;
        let mut words = Cmd::new();
        for word in command.split(' ') {
            words.arg(word);
        }
        words.query(&mut connection)
    }

    /// One number of `INFO`.
    pub fn info(&self, section: &str, name: &str) -> String {
        let info: String = self.ask(&format!("INFO {section}"));
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_default().to_owned()
    }

    /// Limits the size of the server's files to `bytes`, or to nothing if `unlimited`. This looks
    /// like a full disk, and needs no rights.
    pub fn limit_files(&self, bytes: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        let limit = format!("--fsize={bytes}:");
        run(&self.dir, "prlimit", &["--pid", &pid, &limit]);
    }

    /// Waits until its append-only file could be written to, or could not.
    pub fn until_wrote(&self, how: &str) {
        let wrote = || self.info("persistence", "aof_last_write_status") == how;
        until(&format!("writing is {how}"), wrote);
    }

    /// Returns whether the server has been promoted. A sentinel that promotes a server also cuts its
    /// connections.
    pub fn is_primary(&self) -> bool {
        self.try_ask::<String>("INFO replication").is_ok_and(|info| info.contains("role:master"))
    }

    /// Assigns slots to this node of a cluster. Redis 6.2 knows no `CLUSTER ADDSLOTSRANGE`.
    pub fn add_slots(&self, slots: std::ops::Range<u16>) {
        let slots: Vec<_> = slots.map(|slot| slot.to_string()).collect();
        self.ask::<()>(&format!("CLUSTER ADDSLOTS {}", slots.join(" ")));
    }

    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("it runs").id()
    }

    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.ask("KEYS *")
    }

    /// Checks that every key has a time to live.
    pub fn assert_all_keys_expire(&self) {
        let mut connection = self.client().get_connection().expect("a connection");
        for key in self.keys() {
            let ttl: i64 = redis::cmd("PTTL").arg(&key).query(&mut connection).expect("an answer");
            assert_ne!(ttl, -1, "{} has no time to live", String::from_utf8_lossy(&key));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

pub fn free_port() -> u16 {
    // Below the range from which the system takes ports of its own accord; a cluster's bus uses
    // the port 10,000 above.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let offset = NEXT.fetch_add(1, Ordering::Relaxed) + std::process::id() * 37;
        let port = 12_000 + (offset % 10_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok()
            && TcpListener::bind(("127.0.0.1", port + 10_000)).is_ok()
        {
            return port;
        }
    }
}

pub fn directory() -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("plimsoll-{}-{number}", std::process::id()));
    fs::create_dir_all(&path).expect("a directory");
    path
}

/// Three primaries that share all slots.
pub struct Cluster {
    pub nodes: Vec<Server>,
}

impl Cluster {
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// Nodes with these arguments.
    pub fn start_with(arguments: &[&str]) -> Self {
        let arguments = [&["--cluster-enabled", "yes"], arguments].concat();
        let node = |_| Server::start_with(&arguments);
        let nodes: Vec<_> = (0..3).map(node).collect();
        let edges = [0, 5_461, 10_923, 16_384];
        for (node, range) in nodes.iter().zip(edges.windows(2)) {
            node.add_slots(range[0]..range[1]);
            node.ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {}", nodes[0].port));
        }
        for node in &nodes {
            until("the cluster is up", || {
                let info: String = node.ask("CLUSTER INFO");
                info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:3")
            });
        }
        Self { nodes }
    }

    /// Starts a server that follows a node. `known` is the number of nodes with it.
    pub fn replica_of(&self, node: usize, arguments: &[&str], known: usize) -> Server {
        let replica = Server::start_with(&[&["--cluster-enabled", "yes"], arguments].concat());
        replica.ask::<()>(&format!("CLUSTER MEET 127.0.0.1 {}", self.nodes[0].port));
        let knows_all = |server: &Server| {
            server.ask::<String>("CLUSTER INFO").contains(&format!("cluster_known_nodes:{known}"))
        };
        until("all nodes are known", || knows_all(&replica) && self.nodes.iter().all(knows_all));
        let id: String = self.nodes[node].ask("CLUSTER MYID");
        until("it follows", || replica.try_ask::<()>(&format!("CLUSTER REPLICATE {id}")).is_ok());
        until("it is in sync", || replica.info("replication", "master_link_status") == "up");
        replica
    }

    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(Server::url).collect()
    }
}

/// A primary, its replica, and a sentinel that watches over them, perhaps with others.
pub struct Guarded {
    pub primary: Server,
    pub replica: Server,
    pub sentinel: Server,
    pub others: Vec<Server>,
}

impl Guarded {
    /// The name by which the sentinels know the primary.
    pub const NAME: &str = "Shared-1";

    pub fn start() -> Self {
        Self::by(1)
    }

    /// Guarded by a sentinel that promotes no replica, even if the machine is too busy for the
    /// primary to answer for a while.
    pub fn steady() -> Self {
        Self::with(1, Duration::from_secs(600))
    }

    /// Starts `count` sentinels, which promote the replica when the primary has not answered for 2 s. A busy
    /// machine stands still for less, so that they do not promote it before the fault.
    pub fn by(count: usize) -> Self {
        Self::with(count, Duration::from_secs(2))
    }

    fn with(count: usize, down_after: Duration) -> Self {
        let (primary, replica) = (Server::start(), Server::start());
        replica.ask::<()>(&format!("REPLICAOF 127.0.0.1 {}", primary.port));
        until("the replica follows", || replica.info("replication", "master_link_status") == "up");
        let (quorum, name, down_after) = (count / 2 + 1, Self::NAME, down_after.as_millis());
        let sentinel = |_| {
            let (port, path) = (free_port(), directory().join("sentinel.conf"));
            let text = format!(
                "port {port}\nbind 127.0.0.1\n\
                 sentinel monitor {name} 127.0.0.1 {} {quorum}\n\
                 sentinel down-after-milliseconds {name} {down_after}\n\
                 sentinel failover-timeout {name} 2000\n",
                primary.port
            );
            fs::write(&path, text).expect("written");
            let path = path.to_str().expect("utf-8").to_owned();
            Server::start_bare(port, &[path, "--sentinel".into()])
        };
        let mut others: Vec<_> = (0..count).map(sentinel).collect();
        for sentinel in &others {
            until("the sentinels know all", || {
                let known = sentinel.try_ask::<String>("INFO sentinel");
                known.is_ok_and(|info| info.contains(&format!("slaves=1,sentinels={count}")))
            });
        }
        let sentinel = others.remove(0);
        Self { primary, replica, sentinel, others }
    }

    /// Starts one more sentinel that receives no messages of the others, and assumes that the primary
    /// is up.
    pub fn isolated_sentinel(&self) -> Server {
        let (port, path, name) = (free_port(), directory().join("sentinel.conf"), Self::NAME);
        for server in [&self.primary, &self.replica] {
            // Sentinels tell each other of failovers in a channel of the servers.
            server.ask::<()>("ACL SETUSER isolated on >secret +@all ~* resetchannels");
        }
        let text = format!(
            "port {port}\nbind 127.0.0.1\n\
             sentinel monitor {name} 127.0.0.1 {} 4\n\
             sentinel auth-user {name} isolated\n\
             sentinel auth-pass {name} secret\n\
             sentinel down-after-milliseconds {name} 600000\n",
            self.primary.port
        );
        fs::write(&path, text).expect("written");
        let path = path.to_str().expect("utf-8").to_owned();
        let sentinel = Server::start_bare(port, &[path, "--sentinel".into()]);
        until("the sentinel knows the replica", || {
            let known = sentinel.try_ask::<String>("INFO sentinel");
            known.is_ok_and(|info| info.contains("status=ok") && info.contains("slaves=1"))
        });
        sentinel
    }

    /// Returns the flags that the first sentinel has for the primary: `s_down` if the primary does not answer
    /// this sentinel, `o_down` if enough sentinels agree.
    pub fn flags_of_primary(&self) -> String {
        let fields: Vec<String> = self.sentinel.ask(&format!("SENTINEL MASTER {}", Self::NAME));
        let flags = fields.chunks_exact(2).find(|field| field[0] == "flags");
        flags.map(|field| field[1].clone()).unwrap_or_default()
    }

    pub fn urls(&self) -> Vec<String> {
        [&self.sentinel].into_iter().chain(&self.others).map(Server::url).collect()
    }
}

/// An authority, and the certificate of a server at `localhost` or 127.0.0.1.
pub struct Certificates(PathBuf);

impl Certificates {
    pub fn make() -> Self {
        let dir = directory();
        fs::write(dir.join("ext"), "subjectAltName=DNS:localhost,IP:127.0.0.1").expect("written");
        for arguments in [
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.crt -days 2 -subj /CN=ca",
            "req -newkey rsa:2048 -nodes -keyout s.key -out s.csr -subj /CN=localhost",
            "x509 -req -in s.csr -CA ca.crt -CAkey ca.key -CAcreateserial -out s.crt -days 2 \
             -extfile ext",
        ] {
            run(&dir, "openssl", &arguments.split_whitespace().collect::<Vec<_>>());
        }
        Self(dir)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("utf-8").to_owned()
    }

    /// Returns the path of the authority's certificate.
    pub fn authority(&self) -> String {
        self.file("ca.crt")
    }

    /// Returns the arguments of a server that also listens with TLS.
    pub fn arguments(&self, port: u16) -> [String; 10] {
        [
            ("--tls-port", port.to_string()),
            ("--tls-cert-file", self.file("s.crt")),
            ("--tls-key-file", self.file("s.key")),
            ("--tls-ca-cert-file", self.authority()),
            ("--tls-auth-clients", "no".to_owned()),
        ]
        .map(|(name, value)| [name.to_owned(), value])
        .concat()
        .try_into()
        .expect("five options")
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Waits until a condition holds, for at most 90 seconds. A sentinel that was stopped for 2 s watches without
/// acting for 30 s.
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..9_000 {
        if holds() {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("waited in vain: {what}");
}

/// Runs a program to its end.
pub fn run(dir: &Path, program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).current_dir(dir).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}
