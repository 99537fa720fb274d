// Tests of the configuration. They fail if a setting is silently ignored, if a listener is opened
// by mistake, or if a value can forge a log line.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "server/config/config.h"
#include "server/config/log.h"
#include "server/config/token.h"
#include "src/base/sha256.h"

namespace trainyard::server {
namespace {

std::string refusal_of(std::string_view text) {
  Config config;
  const Status s = apply_config_text(text, "trainyardd.yaml", config);
  return s.ok() ? "" : s.error().message;
}

TEST(ServiceConfig, RetentionRulesAreNumbersTimesOrBoth) {
  Config config;
  EXPECT_NE(describe_config(config).find("keep_jobs: all\nkeep_events: all\n"), std::string::npos);
  const auto shown = [&](const std::string& text) {
    const Status s = apply_config_text(text, "f", config);
    if (!s.ok()) return s.error().message;
    const std::string all = describe_config(config);
    return all.substr(all.find("keep_jobs"));
  };
  EXPECT_EQ(shown("keep_jobs: 1000"), "keep_jobs: 1000\nkeep_events: all\nkeep_audit: 400d\n");
  EXPECT_EQ(*config.keep_jobs->newest, 1000);
  EXPECT_FALSE(config.keep_jobs->younger_than_seconds);
  EXPECT_EQ(shown("keep_jobs: 90d"), "keep_jobs: 90d\nkeep_events: all\nkeep_audit: 400d\n");
  EXPECT_FALSE(config.keep_jobs->newest);
  EXPECT_EQ(shown("keep_jobs: 36h,50\nkeep_events: 48h\nkeep_audit: all"),
            "keep_jobs: 50,36h\nkeep_events: 2d\nkeep_audit: all\n");
  EXPECT_EQ(*config.keep_jobs->younger_than_seconds, 36 * 3600);
  EXPECT_EQ(shown("keep_jobs: all\nkeep_events: all"),
            "keep_jobs: all\nkeep_events: all\nkeep_audit: all\n");
  for (const char* bad :
       {"keep_jobs: ''", "keep_jobs: some", "keep_jobs: -1", "keep_jobs: 30m", "keep_jobs: 5,6",
        "keep_jobs: 90d,80d", "keep_jobs: 5,", "keep_jobs: 9999d"}) {
    EXPECT_NE(shown(bad).find("expected all, a number of jobs"), std::string::npos) << bad;
  }
  for (const char* bad : {"keep_events: 100", "keep_events: 1s", "keep_events: 1h,2h"}) {
    EXPECT_NE(shown(bad).find("expected all, or a time from 1h"), std::string::npos) << bad;
  }
}

TEST(ServiceConfig, FileThenFlagsFlagsWin) {
  Config config;
  ASSERT_TRUE(
      apply_config_text("state_dir: /tmp/a\ncpu_slots: 2\nupload_bytes_max: 3MiB\n", "f", config)
          .ok());
  ASSERT_TRUE(apply_setting("cpu_slots", "5", config).ok());
  EXPECT_EQ(config.state_dir, "/tmp/a");
  EXPECT_EQ(config.cpu_slots, 5);
  EXPECT_EQ(config.upload_bytes_max, 3 << 20);
  ASSERT_TRUE(complete_config("/opt/bin/trainyardd", config).ok());
  EXPECT_EQ(config.socket, "/tmp/a/trainyard.sock");
  EXPECT_EQ(config.worker, "/opt/bin/trainyard-worker");
  EXPECT_GE(config.threads_per_job, 1);
}

TEST(ServiceConfig, TheGroupOfTheSocketMustExist) {
  Config config;
  EXPECT_FALSE(*find_socket_group(config)) << "without the setting there is none";
  ASSERT_TRUE(apply_setting("socket_group", "root", config).ok());
  EXPECT_EQ(find_socket_group(config)->value_or(1), 0u);
  ASSERT_TRUE(apply_setting("socket_group", "no-such-group", config).ok());
  const auto missing = find_socket_group(config);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().message,
            "socket_group: this machine has no group 'no-such-group'; 'addgroup --system NAME' "
            "creates one");
  EXPECT_NE(refusal_of("socket_group: ''\n").find("name of a group"), std::string::npos);
  EXPECT_EQ(config.socket_role, "member");
  ASSERT_TRUE(apply_setting("socket_role", "none", config).ok());
  EXPECT_EQ(config.socket_role, "none");
  EXPECT_NE(refusal_of("socket_role: root\n").find("none, viewer, member or maintainer"),
            std::string::npos);
}

TEST(ServiceConfig, EveryKeyAndValueIsUnderstoodOrRefused) {
  EXPECT_NE(refusal_of("cpu_slots: 1\ncpu_slot: 2\n").find("trainyardd.yaml:2"), std::string::npos);
  EXPECT_NE(refusal_of("cpu_slot: 2\n").find("did you mean 'cpu_slots'"), std::string::npos);
  EXPECT_NE(refusal_of("cpu_slots: 65\n").find("0 to 64"), std::string::npos);
  EXPECT_NE(refusal_of("preemption: on\n").find("off or priority"), std::string::npos);
  EXPECT_NE(refusal_of("fair_share_half_life_hours: -1\n").find("0 to 8760"), std::string::npos);
  EXPECT_NE(refusal_of("cpu_slots: 010x\n").find("0 to 64"), std::string::npos);
  EXPECT_NE(refusal_of("cpu_slots: 1\ncpu_slots: 2\n").find("given twice"), std::string::npos);
  EXPECT_NE(refusal_of("cpu_slots: [1]\n").find("one plain value"), std::string::npos);
  EXPECT_NE(refusal_of("insecure_listen: yes\n").find("true or false"), std::string::npos);
  EXPECT_NE(refusal_of("log_level: loud\n").find("debug, info"), std::string::npos);
  EXPECT_NE(refusal_of("listen: nowhere\n").find("host:port"), std::string::npos);
  EXPECT_NE(refusal_of("upload_bytes_max: 99999999GiB\n").find("bytes"), std::string::npos);
  EXPECT_NE(refusal_of("a: [1\n").find("not YAML"), std::string::npos);
  EXPECT_NE(refusal_of("- a\n").find("key: value"), std::string::npos);
  EXPECT_EQ(refusal_of(""), "");
}

TEST(ServiceConfig, RemoteWorkersGetAReachableAddress) {
  const auto completed = [](const std::string& text) {
    Config config;
    EXPECT_TRUE(apply_config_text("state_dir: /tmp/a\n" + text, "f", config).ok());
    const Status s = complete_config("/opt/bin/trainyardd", config);
    return s.ok() ? describe_config(config) : s.error().message;
  };
  EXPECT_NE(refusal_of("workers_listen: nowhere\n").find("host:port"), std::string::npos);
  EXPECT_NE(completed("workers_listen: 192.0.2.1:7451\n").find("workers_listen: 192.0.2.1:7451\n"),
            std::string::npos);
  for (const char* all : {"0.0.0.0:7451", "'[::]:7451'"}) {
    const std::string listen = "workers_listen: " + std::string(all) + "\n";
    EXPECT_NE(completed(listen).find("set workers_advertise"), std::string::npos);
    EXPECT_NE(completed(listen + "workers_advertise: head:7451\n").find("state_dir"),
              std::string::npos);
  }
  EXPECT_NE(completed("workers_advertise: head:7451\n").find("needs workers_listen"),
            std::string::npos);
  const std::string front = "front_socket: /run/front/trainyard.sock\n";
  EXPECT_NE(completed(front + "workers_advertise: head:7451\n").find("state_dir"),
            std::string::npos);
  Config config;
  config.front_socket = "/run/front/trainyard.sock";
  EXPECT_EQ(workers_front_socket(config), "");
  config.workers_advertise = "head:7451";
  EXPECT_EQ(workers_front_socket(config), "/run/front/workers.sock");
  config.workers_listen = "192.0.2.1:7451";
  EXPECT_EQ(workers_front_socket(config), "") << "they come to the daemon's own port";
}

TEST(ServiceConfig, PricesAreNotNegative) {
  Config config;
  ASSERT_TRUE(
      apply_config_text("cpu_price_per_hour: 0.05\ngpu_price_per_hour: 3\n", "f", config).ok());
  EXPECT_EQ(config.cpu_price_per_hour, 0.05);
  Config again;
  ASSERT_TRUE(apply_config_text(describe_config(config), "f", again).ok());
  EXPECT_EQ(again.cpu_price_per_hour, 0.05);
  EXPECT_EQ(again.gpu_price_per_hour, 3);
  for (const char* bad : {"-1", "-0.01", "nan", "inf", "1e7", "3 EUR", "''"}) {
    const std::string refusal = refusal_of(std::string("gpu_price_per_hour: ") + bad + "\n");
    EXPECT_NE(refusal.find("gpu_price_per_hour"), std::string::npos) << bad;
    EXPECT_NE(refusal.find("0 to 1000000"), std::string::npos) << bad;
  }
  EXPECT_TRUE(apply_setting("measure_after_seconds", "-1", config).ok());
  EXPECT_FALSE(apply_setting("measure_after_seconds", "-2", config).ok());
}

TEST(ServiceConfig, AMinimumOfFreeSpaceMayBeZero) {
  Config config;
  EXPECT_EQ(config.disk_free_bytes_min, 1 << 30);
  ASSERT_TRUE(apply_setting("disk_free_bytes_min", "512MiB", config).ok());
  EXPECT_EQ(config.disk_free_bytes_min, 512 << 20);
  ASSERT_TRUE(apply_setting("disk_free_bytes_min", "0", config).ok());
  Config again;
  ASSERT_TRUE(apply_config_text(describe_config(config), "f", again).ok());
  EXPECT_EQ(again.disk_free_bytes_min, 0);
  EXPECT_NE(refusal_of("disk_free_bytes_min: -1\n").find("bytes"), std::string::npos);
  EXPECT_NE(refusal_of("upload_bytes_max: 0\n").find("bytes"), std::string::npos);
}

TEST(ServiceConfig, TimingOfAlgorithmsCanBeSwitchedOff) {
  Config config;
  EXPECT_TRUE(config.time_algorithms);
  ASSERT_TRUE(apply_setting("time_algorithms", "false", config).ok());
  EXPECT_FALSE(config.time_algorithms);
  Config again;
  ASSERT_TRUE(apply_config_text(describe_config(config), "f", again).ok());
  EXPECT_FALSE(again.time_algorithms);
  EXPECT_NE(refusal_of("time_algorithms: no\n").find("true or false"), std::string::npos);
}

TEST(ServiceConfig, ASettingThatRepeatsIsAListInTheFileAndSeveralFlags) {
  Config config;
  ASSERT_TRUE(apply_config_text("ingest_root: [/tmp, /usr/]\n", "f", config).ok());
  ASSERT_TRUE(apply_setting("ingest_root", "/", config).ok());
  EXPECT_EQ(config.ingest_roots, (std::vector<std::filesystem::path>{"/tmp", "/usr/", "/"}));
  const std::string described = describe_config(config);
  Config again;
  ASSERT_TRUE(apply_config_text(described, "f", again).ok()) << described;
  EXPECT_EQ(again.ingest_roots, config.ingest_roots);
  EXPECT_EQ(refusal_of("ingest_root: /tmp\n"), "");
  for (const char* bad : {"ingest_root: tmp\n", "ingest_root: [/tmp, /no/such/folder]\n",
                          "ingest_root: [[/tmp]]\n", "ingest_root: {a: /tmp}\n"}) {
    EXPECT_NE(refusal_of(bad), "") << bad;
  }
}

TEST(ServiceConfig, AListenerBeyondLoopbackNeedsInsecureListen) {
  const auto refusal = [](const std::string& text) {
    Config config;
    const Status applied = apply_config_text("state_dir: /tmp/a\n" + text, "f", config);
    EXPECT_TRUE(applied.ok()) << text;
    const Status s = complete_config("/bin/x", config);
    return s.ok() ? "" : s.error().message;
  };
  const std::string tls = "tls_certificate: /tmp/pem\ntls_key: /tmp/pem\n";
  const std::string all = "listen: 0.0.0.0:1\n";
  for (const char* loopback : {"127.0.0.1:1", "'[::1]:1'", "localhost:1"}) {
    EXPECT_EQ(refusal("listen: " + std::string(loopback) + "\n"), "");
    EXPECT_EQ(refusal("listen: " + std::string(loopback) + "\n" + tls), "");
  }
  for (const std::string& text : {all, all + tls, all + tls + "token_file: /tmp/token\n"}) {
    EXPECT_NE(refusal(text).find("set front_socket"), std::string::npos) << text;
    EXPECT_EQ(refusal(text + "insecure_listen: true\n"), "");
  }
  EXPECT_NE(refusal(tls).find("needs `listen`"), std::string::npos);
  EXPECT_NE(refusal("token_file: /tmp/token\n").find("front_socket"), std::string::npos);
  EXPECT_EQ(refusal("token_file: /tmp/token\nfront_socket: /run/front/s.sock\n"), "");
}

TEST(ServiceConfig, TheFrontEndsSocketHasAFolderOfItsOwn) {
  const auto refusal = [](const std::string& front) {
    Config config;
    config.state_dir = "/tmp/a";
    config.socket = "/run/trainyard/trainyard.sock";
    config.front_socket = front;
    const Status s = complete_config("/bin/x", config);
    return s.ok() ? "" : s.error().message;
  };
  EXPECT_NE(refusal("/run/trainyard/front.sock").find("folder of its own"), std::string::npos);
  EXPECT_NE(refusal("/tmp/a/front.sock").find("folder of its own"), std::string::npos);
  EXPECT_EQ(refusal("/run/trainyard-front/trainyard.sock"), "");
  Config config;
  config.state_dir = "/tmp/a";
  config.front_group = "root";
  const Status s = complete_config("/bin/x", config);
  ASSERT_FALSE(s.ok());
  EXPECT_NE(s.error().message.find("front_group needs front_socket"), std::string::npos);
}

TEST(ServiceConfig, ASocketPathThatIsTooLongIsRefusedBeforeTheLibraryCutsIt) {
  Config config;
  config.state_dir = "/tmp/" + std::string(120, 'x');
  const Status s = complete_config("/bin/x", config);
  ASSERT_FALSE(s.ok());
  EXPECT_NE(s.error().message.find("longest path"), std::string::npos);
}

class ServiceTokens : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  Result<Tokens> load(const std::string& text) {
    std::ofstream(path_) << text;
    ::chmod(path_.c_str(), 0600);
    return Tokens::load(path_);
  }
  std::string refusal(const std::string& text) {
    const Result<Tokens> tokens = load(text);
    if (tokens.ok()) return "taken";
    EXPECT_EQ(tokens.error().reason, "TOKEN_FILE_INVALID");
    EXPECT_EQ(tokens.error().message.find("fedcba"), std::string::npos) << "it shows the token";
    return tokens.error().message;
  }
  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / ("token-" + std::to_string(::getpid()));
};

TEST_F(ServiceTokens, AreReadOnlyFromAPrivateFile) {
  const Result<Tokens> tokens = load("0123456789abcdef\n");
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  ASSERT_EQ(tokens->lines().size(), 1U);
  const Tokens::Line& line = tokens->lines().front();
  EXPECT_EQ(line.person, "token") << "it has no name";
  EXPECT_FALSE(line.named);
  EXPECT_EQ(line.digest, sha256_hex("0123456789abcdef"));
  EXPECT_NE(tokens->warning().find("token_file has a token without a name"), std::string::npos);
  ::chmod(path_.c_str(), 0644);
  EXPECT_FALSE(Tokens::load(path_).ok());
  std::filesystem::remove(path_);
  EXPECT_FALSE(Tokens::load(path_).ok());
}

TEST_F(ServiceTokens, MayHaveNames) {
  const Result<Tokens> tokens = load(
      "# who may call\n\nada   0123456789abcdef-ada\r\nbob@lab 0123456789abcdef-bob\n"
      "ada 0123456789abcdef-new\n0123456789abcdef-old\n");
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  std::vector<std::string> lines;
  for (const Tokens::Line& line : tokens->lines()) {
    lines.push_back(line.person + (line.named ? " named" : ""));
  }
  EXPECT_EQ(lines, (std::vector<std::string>{"ada named", "bob@lab named", "ada named", "token"}))
      << "a person may have two";
  EXPECT_EQ(tokens->lines().at(1).digest, sha256_hex("0123456789abcdef-bob"));
  EXPECT_EQ(load("ada 0123456789abcdef-ada\n")->warning(), "");
}

TEST_F(ServiceTokens, AnInvalidFileIsRefusedWithTheLine) {
  EXPECT_NE(refusal("short\n").find("line 1: expected a token of 16 to 512"), std::string::npos);
  EXPECT_NE(
      refusal("ada fedcba9876543210\nbob fedcba9876543210\n").find("line 2: an earlier line has"),
      std::string::npos);
  EXPECT_NE(refusal("-ada fedcba9876543210\n").find("line 1: the name is not valid"),
            std::string::npos);
  EXPECT_NE(refusal("a/b fedcba9876543210\n").find("line 1: the name is not valid"),
            std::string::npos);
  EXPECT_NE(
      refusal("ada fedcba9876543210 more-fedcba9876543210\n").find("line 1: expected a token"),
      std::string::npos);
  EXPECT_NE(refusal("# nothing\n\n").find("the file has no token"), std::string::npos);
}

TEST(ServiceLog, AValueCannotForgeALine) {
  EXPECT_EQ(kv("job", "a-b"), "job=a-b");
  EXPECT_EQ(kv("m", "two words"), "m=\"two words\"");
  EXPECT_EQ(kv("m", "a\nlevel=error"), "m=\"a\\x0alevel=error\"");
  EXPECT_EQ(kv("m", "say \"x\""), "m=\"say \\\"x\\\"\"");
  EXPECT_EQ(kv("m", ""), "m=\"\"");
  EXPECT_EQ(kv("m", "\u202Etxt.exe"), "m=\"\\u{202e}txt.exe\"") << "reorders the line";
  EXPECT_EQ(kv("m", "\u009B31m"), "m=\"\\u{9b}31m\"") << "begins an escape sequence";
  EXPECT_EQ(kv("m", "\xff"), "m=\"\\xff\"") << "not UTF-8";
  EXPECT_EQ(kv("m", "Grüße"), "m=Grüße");
  EXPECT_EQ(kv("m", std::string(600, 'a')), "m=" + std::string(512, 'a') + "...");
}

TEST(ServiceLog, ALineOfPairsBecomesAnObject) {
  EXPECT_EQ(log_line_to_json("time=2026-11-30T09:12:44.001Z level=info event=job_submitted " +
                             kv("job", "a \"b\" \\ c") + " priority=-3 share=0.5 uid=01e5"),
            R"({"time":"2026-11-30T09:12:44.001Z","level":"info","event":"job_submitted",)"
            R"("job":"a \"b\" \\ c","priority":-3,"share":0.5,"uid":"01e5"})");
  EXPECT_EQ(log_line_to_json("level=warn two words here=x"),
            R"({"level":"warn","here":"x","message":"two words"})");
  EXPECT_EQ(log_line_to_json("m=\"cut off"), R"({"m":"cut off"})");
  EXPECT_EQ(log_line_to_json("empty="), R"({"empty":""})");
}

}  // namespace
}  // namespace trainyard::server
