// Pools: their files, and what a spec that names one becomes.
#include <gtest/gtest.h>

#include <fstream>

#include "server/config/config.h"
#include "server/config/pool.h"
#include "server/service/pool_devices.h"
#include "tests/server/store_support.h"

namespace trainyard::server {
namespace {

constexpr const char* kWhole = R"(
name: slurm
kind: slurm
cluster: hpc
partition: gpu
account: lab-7
qos: normal
cpus: 8
memory: 64GiB
gpus_per_node: 4
gpu_type: a100
gpu_memory: 80GiB
time_limit: 12h
waiting_max: 6
poll_seconds: 15
lease_seconds: 3600
worker: /opt/trainyard/bin/trainyard-worker
cache: /scratch/trainyard
cache_bytes: 1TiB
commands: /usr/local/slurm/bin
output: /var/log/slurm/%j.log
measure_nodes: false
price_per_hour: 2.5
)";

TEST(PoolConfig, ReadsWhatItKnows) {
  const Result<PoolConfig> pool = parse_pool(kWhole, "p.yaml");
  ASSERT_TRUE(pool.ok()) << pool.error().message;
  EXPECT_EQ(pool->name, "slurm");
  EXPECT_EQ(pool->cluster, "hpc");
  EXPECT_EQ(pool->cpus, 8);
  EXPECT_EQ(pool->memory_bytes, int64_t{64} << 30);
  EXPECT_EQ(pool->gpu_memory_bytes, int64_t{80} << 30);
  EXPECT_EQ(pool->time_limit_seconds, 12 * 3600);
  EXPECT_EQ(pool->cache_bytes, int64_t{1} << 40);
  EXPECT_EQ(pool->worker, "/opt/trainyard/bin/trainyard-worker");
  EXPECT_FALSE(pool->measure_nodes);
  EXPECT_TRUE(PoolConfig().measure_nodes);
  EXPECT_EQ(pool->price_per_hour, 2.5);
}

TEST(PoolConfig, RefusesTheRestByItsLine) {
  const std::string base = "name: s\nkind: slurm\nworker: /w\ncache: /c\n";
  ASSERT_TRUE(parse_pool(base, "p").ok());
  const struct {
    std::string more, expected;
  } kCases[] = {
      {"partion: x\n", "p:5: unknown key 'partion', did you mean 'partition'?"},
      {"partition: \"a; rm -rf /\"\n", "p:5: partition: 'a; rm -rf /' is not valid"},
      {"account: --uid=0\n", "p:5: account: '--uid=0' is not valid"},
      {"cpus: 0\n", "p:5: cpus: '0' is not valid, expected a number from 1 to 256"},
      {"memory: much\n", "p:5: memory: 'much' is not valid, expected a number of bytes"},
      {"time_limit: 5s\n", "p:5: time_limit: '5s' is not valid, expected a time from 60s to 365d"},
      {"commands: bin\n", "p:5: commands: 'bin' is not valid, expected an absolute path"},
      {"measure_nodes: maybe\n",
       "p:5: measure_nodes: 'maybe' is not valid, expected true or false"},
      {"price_per_hour: -1\n", "p:5: price_per_hour: '-1' is not valid, expected a number from 0"},
      {"price_per_hour: nan\n", "p:5: price_per_hour: 'nan' is not valid"},
      {"kind: k8s\n", "p:5: key 'kind' is given twice"},
      {"gpu_type: a100\n", "p: gpu_type and gpu_memory need gpus_per_node"},
      {"cpus: [1]\n", "p:5: 'cpus' expects one plain value"},
  };
  for (const auto& c : kCases) {
    const Result<PoolConfig> pool = parse_pool(base + c.more, "p");
    ASSERT_FALSE(pool.ok()) << c.more;
    EXPECT_TRUE(pool.error().message.starts_with(c.expected)) << pool.error().message;
    EXPECT_EQ(pool.error().reason, "CONFIG_INVALID");
  }
  EXPECT_EQ(parse_pool("name: s\nkind: slurm\nworker: /w\n", "p").error().message,
            "p: cache is missing; a pool needs name, kind, worker and cache");
  EXPECT_EQ(parse_pool("name: S\n", "p").error().message.substr(0, 10), "p:1: name:");
  EXPECT_EQ(parse_pool("kind: k8s\n", "p").error().message,
            "p:1: kind: 'k8s' is not valid, expected slurm");
  EXPECT_FALSE(parse_pool("- a\n", "p").ok());
  EXPECT_FALSE(parse_pool("a: [", "p").ok());
}

TEST(PoolConfig, OneNameOnce) {
  const TemporaryDirectory folder;
  for (const char* file : {"a.yaml", "b.yaml"}) {
    std::ofstream(folder.path() / file) << "name: s\nkind: slurm\nworker: /w\ncache: /c\n";
  }
  Config config;
  ASSERT_TRUE(apply_setting("pool", (folder.path() / "a.yaml").string(), config).ok());
  const Status again = apply_setting("pool", (folder.path() / "b.yaml").string(), config);
  ASSERT_FALSE(again.ok());
  EXPECT_NE(again.error().message.find("another pool has the name 's' already"), std::string::npos);
  EXPECT_FALSE(apply_setting("pool", "a.yaml", config).ok());
  EXPECT_FALSE(apply_setting("pool", (folder.path() / "none.yaml").string(), config).ok());
  ASSERT_EQ(config.pools.size(), 1u);
  Config printed;
  ASSERT_TRUE(apply_config_text(describe_config(config), "f", printed).ok());
  EXPECT_EQ(printed.pools.at(0).name, "s");
}

TEST(PoolDevices, FillInASpec) {
  const std::vector<PoolConfig> pools = {*parse_pool(kWhole, "p"),
                                         *parse_pool("name: cpus\nkind: slurm\nworker: /w\n"
                                                     "cache: /c\ncpus: 3\n",
                                                     "q")};
  v1::Resources resources;
  resources.set_pool("slurm");
  Violations none;
  resolve_pool(pools, resources, none);
  EXPECT_TRUE(none.empty());
  EXPECT_EQ(resources.device(), v1::Resources::GPU);
  EXPECT_EQ(resources.threads(), 8);
  v1::Resources on_cpu;
  on_cpu.set_pool("cpus");
  on_cpu.set_device(v1::Resources::AUTO);
  resolve_pool(pools, on_cpu, none);
  EXPECT_EQ(on_cpu.device(), v1::Resources::CPU);
  EXPECT_EQ(on_cpu.threads(), 3);
  const Devices node = devices_of(pools[0]);
  EXPECT_EQ(node.devices.size(), 5u);
  EXPECT_EQ(node.devices[1].memory_bytes, int64_t{80} << 30);
  EXPECT_EQ(node.pool, "slurm");
}

TEST(PoolDevices, NameWhatIsWrong) {
  const std::vector<PoolConfig> pools = {*parse_pool(kWhole, "p"),
                                         *parse_pool("name: cpus\nkind: slurm\nworker: /w\n"
                                                     "cache: /c\n",
                                                     "q")};
  const auto refusal = [&](const auto& fill, std::span<const PoolConfig> known) {
    v1::Resources resources;
    fill(resources);
    Violations violations;
    resolve_pool(known, resources, violations);
    return violations.empty() ? std::string() : violations.to_error().message;
  };
  EXPECT_EQ(refusal([](v1::Resources& r) { r.set_pool("slrum"); }, pools),
            "resources.pool: 'slrum' is not known, expected slurm or cpus");
  EXPECT_EQ(refusal([](v1::Resources& r) { r.set_pool("slurm"); }, {}),
            "resources.pool: 'slurm' is not known, and this server has no pools; leave it out to "
            "train on the server's own devices");
  EXPECT_EQ(refusal(
                [](v1::Resources& r) {
                  r.set_pool("cpus");
                  r.set_device(v1::Resources::GPU);
                },
                pools),
            "resources.device: gpu is not available in the pool cpus, expected auto or cpu");
  EXPECT_EQ(refusal(
                [](v1::Resources& r) {
                  r.set_pool("slurm");
                  r.set_gpus(8);
                },
                pools),
            "resources.gpus: 8 is more than a node of the pool slurm has, expected 1..4");
  EXPECT_EQ(refusal(
                [](v1::Resources& r) {
                  r.set_pool("slurm");
                  r.set_exclusive(true);
                },
                pools)
                .substr(0, 21),
            "resources.exclusive: ");
  EXPECT_EQ(refusal([](v1::Resources&) {}, pools), "");
}

}  // namespace
}  // namespace trainyard::server
