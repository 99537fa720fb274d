// trainyardd: the daemon. Flags and signals; everything else is server/daemon/daemon.h.
//
// Exit codes: 0 stopped as asked, --check found nothing damaged, --undo-upgrade done; 1 could not
// start (port taken, state folder in use, store damaged), --check found damage, there is no upgrade
// to undo; 2 wrong flags or configuration.
#include <absl/synchronization/mutex.h>
#include <fcntl.h>
#include <grpc/grpc.h>
#include <malloc.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/wait.h>
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
#include <string>
#include <thread>
#include <vector>

#include "server/config/config.h"
#include "server/config/log.h"
#include "server/daemon/daemon.h"
#include "src/base/child_process.h"
#include "src/base/manual_page.h"

namespace trainyard::server {
namespace {

constexpr const char* kDefaultConfigFile = "/etc/trainyard/trainyardd.yaml";
constexpr int64_t kConfigBytesMax = 1 << 20;

/// A page of section 8, of the options that --help shows.
std::string manual_of(const CLI::App& app) {
  ManualPage page("trainyardd", 8, "accept, store and run training jobs");
  page.heading("SYNOPSIS");
  page.line({{"trainyardd", ManualPage::Word::kBold},
             {" ["},
             {"options", ManualPage::Word::kItalic},
             {"]"}});
  page.heading("DESCRIPTION");
  page.paragraph(
      "The daemon accepts training jobs by gRPC, stores them and runs them in worker processes. "
      "Its "
      "settings are those of the configuration file, and each is an option too, which wins over "
      "the file. SIGTERM lets jobs write a checkpoint before it ends; SIGUSR2 replaces the daemon "
      "in place, with the program that is installed by then.");
  page.heading("OPTIONS");
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    std::string names = option->get_name(false, true);  // "-h,--help"
    if (const size_t comma = names.find(','); comma != std::string::npos) {
      names.insert(comma + 1, " ");
    }
    std::vector<ManualPage::Word> term = {{names, ManualPage::Word::kBold}};
    if (option->get_expected_max() > 0) {  // no switch
      term.insert(term.end(), {{" "}, {"VALUE", ManualPage::Word::kItalic}});
    }
    page.item(term, option->get_description());
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
  std::vector<std::pair<std::string, std::string>> flags;  // setting, text; in order of the table
};

int complain(const Error& error, int exit_code) {
  std::fprintf(stderr, "trainyardd: %s [%s]\n", error.message.c_str(), error.reason.c_str());
  return exit_code;
}

/// Returns an exit code if the program ends here.
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
               "Put the store of before the last upgrade back in place, for an earlier trainyardd, "
               "then exit; what was stored since is set aside")
      ->excludes("--check");
  app.add_flag("--print-config", out.print_config, "Print the effective settings, then exit");
  bool print_manual = false;
  app.add_flag("--print-manual", print_manual, "Print this text as a manual page")->group("");
  struct Flag {
    std::string name;
    std::string text;
    std::vector<std::string> texts;  // of one that repeats
    bool on = false;
    CLI::Option* option = nullptr;
  };
  std::list<Flag> flags;  // addresses must hold still
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
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
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

/// Each line at once: a check of much data takes its time.
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

/// Whether the program at `path`, which may be a newer one than this, accepts our arguments.
bool accepts_arguments(const std::string& path, char** argv) {
  const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  ProgramRun run{.path = path, .fds = {.input = -1, .output = null.get(), .errors = -1}};
  for (char** a = argv; *a != nullptr; ++a) run.arguments.emplace_back(*a);
  run.arguments.emplace_back("--print-config");
  const std::optional<int> status = run_program(run);
  return status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0;
}

enum class Ending : uint8_t { kStop, kReplace };

/// Waits for a signal to stop, then drains; a second one stops the daemon at once. That is safe:
/// the store is durable at every instant, and jobs resume from their checkpoints. SIGUSR2: stops
/// for the program at `program`, which takes over the workers, if it accepts our arguments.
Ending run_until_signal(Daemon& daemon, const sigset_t& signals, const std::string& program,
                        char** argv) {
  Ending ending = Ending::kStop;
  for (;;) {
    int signal = 0;
    if (::sigwait(&signals, &signal) != 0 || signal == SIGHUP) continue;
    spdlog::info("event=signal number={}", signal);
    if (signal != SIGUSR2) break;
    if (accepts_arguments(program, argv)) {
      ending = Ending::kReplace;
      break;
    }
    spdlog::error("event=not_replaced {} {}", kv("program", program),
                  kv("message",
                     "it cannot be run, or does not accept this daemon's settings; "
                     "this one goes on"));
  }
  std::thread([&daemon, signals] {
    int again = 0;
    while (::sigwait(&signals, &again) != 0 || again == SIGHUP || again == SIGUSR2) {
    }
    spdlog::warn("event=second_signal number={}", again);
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

/// Becomes `program`, with the same pid. Returns only on failure.
int replace_with(const std::string& program, char** argv) {
  spdlog::info("event=replacing {}", kv("program", program));
  spdlog::shutdown();
  (void)close_on_exec_from(3);
  ::execv(program.c_str(), argv);
  std::fprintf(stderr, "trainyardd: cannot run %s: %s\n", program.c_str(), std::strerror(errno));
  return 1;
}

int run(int argc, char** argv) {
  Arguments arguments;
  if (const std::optional<int> code = parse_arguments(argc, argv, arguments)) return *code;
  const sigset_t signals = ending_signals();
  if (arguments.check) ::pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);  // Ctrl-C ends a check
  Result<Config> config = make_config(arguments);
  if (!config.ok()) return complain(config.error(), 2);
  if (arguments.print_config) {
    std::fputs(describe_config(*config).c_str(), stdout);
    return 0;
  }
  start_logging(config->log_level);
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
  // Where the program is, now: after an upgrade the link names a file that is gone.
  const std::string program = std::filesystem::read_symlink("/proc/self/exe");
  DaemonParts parts;
  parts.adopt_orphans = true;
  Result<std::unique_ptr<Daemon>> daemon = Daemon::start(*config, std::move(parts));
  if (!daemon.ok()) {
    const bool usage = daemon.error().reason == "TOKEN_FILE_INVALID";
    return complain(daemon.error(), usage ? 2 : 1);
  }
  const Ending ending = run_until_signal(**daemon, signals, program, argv);
  daemon->reset();
  return ending == Ending::kReplace ? replace_with(program, argv) : 0;
}

}  // namespace
}  // namespace trainyard::server

int main(int argc, char** argv) {
  ::umask(0077);  // sockets, store and files are private to the daemon
  ::signal(SIGPIPE, SIG_IGN);
  ::mallopt(M_ARENA_MAX, 2);  // many threads that allocate little: keeps the idle daemon small
  ::setenv("GRPC_VERBOSITY", "NONE", 0);  // refusals are told in sentences of ours
  // Before gRPC or anything else makes a thread, so that sigwait() alone takes them: a signal to
  // the process goes to any thread that does not block it, and its default is to end us at once.
  const sigset_t signals = trainyard::server::ending_signals();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  // Debian builds Abseil with the checks of a debug build: each lock of gRPC's would be entered in
  // one graph for the whole process, under one lock, to look for cycles.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // One reference that is never given back: the last one's end waits for gRPC's threads, of which
  // one may sleep in a poll for 10 s, longer than Docker waits before it kills.
  ::grpc_init();
  return trainyard::server::run(argc, argv);
}
