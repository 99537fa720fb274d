// server/main.cc: trainyardd, the daemon: its flags and signals. Everything else is in
// server/daemon/daemon.h.
//
// Exit codes:
//   0  a signal stopped the daemon, --check found no damage, or --undo-upgrade or --init-admin
//      succeeded
//   1  the daemon could not start (port taken, state folder in use, store damaged), --check found
//      damage, or there was no upgrade to undo
//   2  wrong flags or configuration
#include <absl/synchronization/mutex.h>
#include <grpc/grpc.h>
#include <malloc.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <list>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "server/config/config.h"
#include "server/config/log.h"
#include "server/daemon/daemon.h"
#include "server/daemon/init_admin.h"
#include "server/daemon/replacement.h"
#include "src/base/child_process.h"
#include "src/base/manual_page.h"
#include "src/base/stop.h"
#include "src/base/text.h"

namespace trainyard::server {
namespace {

constexpr const char* kDefaultConfigFile = "/etc/trainyard/trainyardd.yaml";
constexpr int64_t kConfigBytesMax = 1 << 20;

/// Returns the names of an option, "-h, --help", and VALUE if it takes one.
std::string term_of(const CLI::Option& option) {
  std::string names = option.get_name(false, true);  // "-h,--help"
  if (const size_t comma = names.find(','); comma != std::string::npos) {
    names.insert(comma + 1, " ");
  }
  return names + (option.get_expected_max() > 0 ? " VALUE" : "");
}

/// Returns a text in lines of at most 80 columns.
std::string folded(const std::string& text, size_t indentation = 0) {
  const size_t columns = 80 - indentation;
  const std::string indent(indentation, ' ');
  std::string out, line;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    if (!line.empty() && line.size() + 1 + word.size() > columns) {
      out += indent + line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return out + indent + line + "\n";
}

/// Returns the text of --help: what CLI11 prints has its own words for types and conditions.
std::string help_of(const CLI::App& app) {
  std::string out = folded(app.get_description()) + "\nUsage: trainyardd [options]\n\n" +
                    folded(
                        "Each setting is also a key of the configuration file, with "
                        "underscores in place of dashes.") +
                    "\nOptions:\n";
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    out += "  " + term_of(*option) + "\n" + folded(option->get_description(), 6);
  }
  return out;
}

Error usage_error(std::string message) {
  if (!message.ends_with('?')) message += "; 'trainyardd --help' lists the options";
  return make_error(ErrorCode::kInvalidArgument, "USAGE", std::move(message));
}

/// Returns what is wrong with the command line in this program's words.
Error usage_error_of(const CLI::App& app, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> extra = app.remaining();
    const std::string first = extra.empty() ? "" : extra.front();
    std::vector<std::string> known;
    for (const CLI::Option* option : app.get_options()) {
      for (const std::string& name : option->get_lnames()) known.push_back(name);
    }
    const size_t bare = std::min(first.size(), first.find_first_not_of('-'));
    const auto near = nearest_name(first.substr(bare, first.find('=') - bare), known);
    return usage_error((first.starts_with('-') ? "unknown option " : "unexpected argument ") +
                       quoted_value(first) + (near ? ", did you mean '--" + *near + "'?" : ""));
  }
  std::string name = error.what();  // "--listen: 1 required TEXT missing"
  name = name.substr(0, name.find_first_of(": "));
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr) {
    return usage_error(name + ": expected one value after it");
  }
  return usage_error(error.what());
}

/// Returns the manual page (section 8) with the options that --help shows.
std::string manual_of(const CLI::App& app) {
  ManualPage page("trainyardd", 8, "accept, store and run training jobs");
  page.heading("SYNOPSIS");
  page.line({{"trainyardd", ManualPage::Word::kBold},
             {" ["},
             {"options", ManualPage::Word::kItalic},
             {"]"}});
  page.heading("DESCRIPTION");
  page.paragraph(
      "The daemon accepts training jobs over gRPC, stores them and runs them in worker processes. "
      "Its settings come from the configuration file; each is also an option, which takes "
      "precedence over the file. After SIGTERM it lets jobs write a checkpoint before it exits; "
      "SIGHUP lets it read token_file and the certificate again; SIGUSR2 replaces it in place with "
      "the program that is installed at that time.");
  page.heading("OPTIONS");
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    page.item({{term_of(*option), ManualPage::Word::kBold}}, option->get_description());
  }
  page.heading("FILES");
  page.item({{kDefaultConfigFile, ManualPage::Word::kItalic}},
            "the settings, in YAML, unless --config names another file");
  page.heading("SEE ALSO");
  page.line({{"trainyard", ManualPage::Word::kBold}, {"(1)"}});
  return page.source();
}

struct Arguments {
  std::string config_file;
  bool check = false;
  bool undo_upgrade = false;
  bool print_config = false;
  std::optional<std::string> init_admin;  // a person's name
  // (setting, value), in the order of settings()
  std::vector<std::pair<std::string, std::string>> flags;
};

int complain(const Error& error, int exit_code) {
  std::fprintf(stderr, "trainyardd: %s [%s]\n", error.message.c_str(), error.reason.c_str());
  return exit_code;
}

/// Returns the exit code if the program is to end after parsing.
std::optional<int> parse_arguments(int argc, char** argv, Arguments& out) {
  CLI::App app{
      "Trainyard's daemon: accepts training jobs, stores them and runs them in worker processes."};
  app.set_version_flag("--version", std::string("trainyardd ") + TRAINYARD_VERSION);
  app.add_option(
      "--config", out.config_file,
      std::string("YAML settings file; default ") + kDefaultConfigFile + " if it exists");
  app.add_flag("--check", out.check,
               "Check the configuration, all stored data and the devices, then exit");
  app.add_flag("--undo-upgrade", out.undo_upgrade,
               "Restore the store as it was before the last upgrade, for an earlier trainyardd, "
               "then exit; data stored since then is set aside");
  app.add_option("--init-admin", out.init_admin,
                 "Make this person an admin of the server, print a token for them, then exit; for "
                 "a stopped daemon");
  app.add_flag("--print-config", out.print_config, "Print the effective settings, then exit");
  bool print_manual = false;
  app.add_flag("--print-manual", print_manual, "Print this text as a manual page")->group("");
  struct Flag {
    std::string name;
    std::string text;
    std::vector<std::string> texts;  // the values of a flag that may be repeated
    bool on = false;
    CLI::Option* option = nullptr;
  };
  std::list<Flag> flags;  // a list, because CLI11 keeps pointers to its elements
  for (const Setting& setting : settings()) {
    Flag& flag = flags.emplace_back();
    flag.name = setting.name;
    std::string spelled = "--" + setting.name;
    std::replace(spelled.begin() + 2, spelled.end(), '_', '-');
    flag.option = setting.is_switch ? app.add_flag(spelled, flag.on, setting.help)
                  : setting.repeats ? app.add_option(spelled, flag.texts, setting.help)->expected(1)
                                    : app.add_option(spelled, flag.text, setting.help);
    if (setting.repeats) flag.option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    std::fputs(help_of(app).c_str(), stdout);
    return 0;
  } catch (const CLI::CallForVersion& version) {
    std::printf("%s\n", version.what());
    return 0;
  } catch (const CLI::ParseError& e) {
    return complain(usage_error_of(app, e), 2);
  }
  if (int{out.check} + int{out.undo_upgrade} + int{out.init_admin.has_value()} > 1) {
    return complain(usage_error("--check, --undo-upgrade and --init-admin exclude each other"), 2);
  }
  if (print_manual) {
    std::fputs(manual_of(app).c_str(), stdout);
    return 0;
  }
  for (const Flag& flag : flags) {
    if (flag.option->count() == 0) continue;
    for (const std::string& text : flag.texts) out.flags.emplace_back(flag.name, text);
    if (!flag.texts.empty()) continue;
    const bool is_switch = flag.text.empty() && flag.on;
    out.flags.emplace_back(flag.name, is_switch ? "true" : flag.text);
  }
  return std::nullopt;
}

Result<Config> make_config(const Arguments& arguments) {
  Config config;
  std::string file = arguments.config_file;
  std::error_code ec;
  if (file.empty() && std::filesystem::exists(kDefaultConfigFile, ec)) file = kDefaultConfigFile;
  if (!file.empty()) {
    ASSIGN_OR_RETURN(const std::string text, read_file(file, kConfigBytesMax));
    if (Status s = apply_config_text(text, file, config); !s.ok()) return s.error();
  }
  for (const auto& [name, text] : arguments.flags) {
    if (Status s = apply_setting(name, text, config); !s.ok()) return s.error();
  }
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ec);
  if (Status s = complete_config(program, config); !s.ok()) return s.error();
  return config;
}

/// Returns a function that prints a line and flushes it immediately, since checking much data takes
/// long.
std::function<void(const std::string&)> print_to(std::FILE* file) {
  return [file](const std::string& text) {
    std::fprintf(file, "%s\n", text.c_str());
    std::fflush(file);
  };
}

sigset_t ending_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR2}) sigaddset(&signals, s);
  return signals;
}

/// Returns the signals that stop the daemon.
sigset_t stopping_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int s : {SIGTERM, SIGINT}) sigaddset(&signals, s);
  return signals;
}

/// Tries the program at this daemon's path, which may be newer, with this process's arguments.
Status try_program(const std::string& program, char** argv, const Config& config) {
  ReplacementTrial trial{.program = program,
                         .arguments = {},
                         .line = "state_dir: " + config.state_dir.string(),
                         .interrupts = stopping_signals()};
  for (char** a = argv + 1; *a != nullptr; ++a) trial.arguments.emplace_back(*a);
  return try_replacement(trial);
}

enum class Ending : uint8_t { kStop, kReplace };

/// Waits for a signal to stop, then drains; a second signal stops the daemon immediately. That is
/// safe: the store is durable at every instant, and jobs resume from their checkpoints. After
/// SIGHUP the daemon reads its files of secrets again. SIGUSR2 stops the daemon so that `program`
/// can replace it and take over the workers. SIGUSR2 is ignored if `program` is not a trainyardd
/// that accepts this process's arguments within 10 s.
Ending run_until_signal(Daemon& daemon, const sigset_t& signals, const std::string& program,
                        char** argv, const Config& config) {
  Ending ending = Ending::kStop;
  for (;;) {
    int signal = 0;
    if (::sigwait(&signals, &signal) != 0) continue;
    spdlog::info("event=signal_received number={}", signal);
    if (signal == SIGHUP) {
      daemon.read_secrets();
      continue;
    }
    if (signal != SIGUSR2) break;
    const Status tried = try_program(program, argv, config);
    if (tried.ok()) {
      ending = Ending::kReplace;
      break;
    }
    if (tried.error().reason == kStopped) continue;  // the signal that ended the trial comes next
    spdlog::error("event=daemon_not_replaced {} {}", kv("program", program),
                  kv("message", tried.error().message + "; this daemon keeps running"));
  }
  std::thread([&daemon, signals] {
    int again = 0;
    while (::sigwait(&signals, &again) != 0 || again == SIGHUP || again == SIGUSR2) {
    }
    spdlog::warn("event=second_signal_received number={}", again);
    daemon.kill_workers();
    ::_exit(0);
  }).detach();
  if (ending == Ending::kReplace) {
    daemon.leave();
  } else {
    daemon.drain();
  }
  return ending;
}

/// Replaces this process's program by `program` with exec, which keeps the pid. If `program` was
/// removed since it was tried, starts this one again. Returns only on failure.
int replace_with(const std::string& program, char** argv) {
  spdlog::info("event=replacement_started {}", kv("program", program));
  spdlog::shutdown();
  (void)close_on_exec_from(3);
  ::execv(program.c_str(), argv);
  std::fprintf(stderr, "trainyardd: cannot run %s: %s\n", program.c_str(), std::strerror(errno));
  ::execv("/proc/self/exe", argv);
  return 1;
}

/// Prints the token alone to the output, so that a script can store it.
int print_admin(const Result<InitialAdmin>& admin) {
  if (!admin.ok()) return complain(admin.error(), 1);
  std::fprintf(stderr,
               "%s is now an admin. This token is valid for 90 days and is not shown again; "
               "'trainyard login' stores it:\n",
               admin->name.c_str());
  std::fflush(stderr);
  std::printf("%s\n", admin->token.c_str());
  return 0;
}

int run(int argc, char** argv) {
  Arguments arguments;
  if (const std::optional<int> code = parse_arguments(argc, argv, arguments)) return *code;
  const sigset_t signals = ending_signals();
  // Unblock the signals, so that Ctrl-C ends a check.
  if (arguments.check) ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  Result<Config> config = make_config(arguments);
  if (!config.ok()) return complain(config.error(), 2);
  if (arguments.print_config) {
    std::fputs(describe_config(*config).c_str(), stdout);
    return 0;
  }
  start_logging(config->log_level, config->log_format);
  if (arguments.check) {
    const Result<bool> sound = check_installation(*config, print_to(stdout), print_to(stderr));
    if (!sound.ok()) return complain(sound.error(), 1);
    return *sound ? 0 : 1;
  }
  if (arguments.undo_upgrade) {
    const Result<std::string> undone = undo_upgrade_of(*config);
    if (!undone.ok()) return complain(undone.error(), 1);
    std::printf("%s\n", undone->c_str());
    return 0;
  }
  if (arguments.init_admin) return print_admin(init_admin(*config, *arguments.init_admin));
  // Read at the start: after an upgrade the link names a deleted file.
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  DaemonParts parts;
  parts.adopt_orphans = true;
  Result<std::unique_ptr<Daemon>> daemon = Daemon::start(*config, std::move(parts));
  if (!daemon.ok()) {
    const bool usage = daemon.error().code == ErrorCode::kInvalidArgument;
    return complain(daemon.error(), usage ? 2 : 1);
  }
  const Ending ending = run_until_signal(**daemon, signals, program, argv, *config);
  daemon->reset();
  return ending == Ending::kReplace ? replace_with(program, argv) : 0;
}

}  // namespace
}  // namespace trainyard::server

int main(int argc, char** argv) {
  ::umask(0077);  // sockets, store and files are private to the daemon
  ::signal(SIGPIPE, SIG_IGN);
  ::mallopt(M_ARENA_MAX, 2);  // keeps an idle daemon small: its many threads allocate little
  ::setenv("GRPC_VERBOSITY", "NONE", 0);  // gRPC logs nothing; this program reports errors itself
  // Block the signals before gRPC or other code creates a thread, so that only sigwait() receives
  // them. The kernel delivers a signal to any thread that does not block it, and the default action
  // would end the process immediately.
  const sigset_t signals = trainyard::server::ending_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // Debian builds Abseil with its debug checks, which record every lock that gRPC takes in one
  // graph for the whole process, under one global lock, to detect deadlock cycles. This disables
  // them.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Takes a reference to gRPC that is never released. Releasing the last one waits for gRPC's
  // threads, one of which may sleep in poll() for 10 s: longer than Docker waits before it kills
  // the process.
  ::grpc_init();
  return trainyard::server::run(argc, argv);
}
