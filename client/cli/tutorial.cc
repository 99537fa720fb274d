// client/cli/tutorial.cc: `trainyard tutorial` walks through a first job and explains each command.
// It starts this program for every command, so that users see exactly what they get when they type
// it.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <random>

#include "client/cli/command.h"
#include "client/cli/confirm.h"
#include "client/cli/temporary_folder.h"
#include "src/base/child_process.h"
#include "src/base/files.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSpec =  // spec_text() writes this after the dataset's name
    "  path: animals.csv\n"
    "  csv: {target: animal}\n"
    "model:\n"
    "  mlp: {hidden: [16]}\n"
    "recipe:\n"
    "  epochs: 20\n"
    "  batch_size: 16\n"
    "  optimizer: {type: adam, learning_rate: 0.01}\n"
    "  validation_split: 0.2   # a fifth of the rows is used only to measure the model\n"
    "  seed: 1\n";
constexpr std::string_view kNewRows =
    "weight_kg,ear_cm,tail_cm\n"
    "3.9,4.2,28\n"
    "14,8.8,35\n"
    "2.4,10.1,5\n";

struct TutorialOptions {
  std::string folder;
  bool yes = false;
};

/// Returns CSV rows of 300 animals of three kinds whose measurements overlap a little. The rows are
/// the same on every system.
std::string animals() {
  struct Kind {
    const char* name;
    double weight, ear, tail;
  };
  constexpr std::array<Kind, 3> kinds = {Kind{"cat", 4, 4.5, 30}, Kind{"dog", 12, 8, 40},
                                         Kind{"rabbit", 2.2, 9.5, 5}};
  std::string out = "weight_kg,ear_cm,tail_cm,animal\n";
  std::mt19937 random(1);
  const auto about = [&](double middle) {
    // Approximates a normal distribution: those of the standard library differ between systems.
    double normal = -6;
    for (int i = 0; i < 12; ++i) normal += random() / 4294967296.0;
    char text[32];
    std::snprintf(text, sizeof text, "%.1f,", middle * std::exp(0.35 * normal));
    return std::string(text);
  };
  for (size_t i = 0; i < 300; ++i) {
    const Kind& kind = kinds[i % kinds.size()];
    out += about(kind.weight) + about(kind.ear) + about(kind.tail) + kind.name + "\n";
  }
  return out;
}

/// `name` is the dataset's name on a server; the tutorial deletes the dataset by this name.
std::string spec_text(const std::string& name) {
  return "# Which animal is it? \"animal\" is the column that the model learns to predict.\n"
         "dataset:\n  name: " +
         name + "\n" + std::string(kSpec);
}

/// Quotes an argument for the shell where necessary.
std::string shell_word(const std::string& word) {
  return word.find_first_of(" '\"$*()[]{}&;|<>\\") == std::string::npos ? word : "'" + word + "'";
}

/// Makes a path absolute, because the commands run in the tutorial's folder.
std::string absolute_path(const std::string& path) {
  return path.empty() ? path : fs::absolute(path).string();
}
std::string absolute_server(const std::string& server) {
  constexpr std::string_view kUnix = "unix:";
  if (!server.starts_with(kUnix)) return server;
  return std::string(kUnix) + absolute_path(server.substr(kUnix.size()));
}

/// Makes paths absolute in the environment variables by which all commands find the server.
void make_variables_absolute() {
  if (const char* server = std::getenv("TRAINYARD_SERVER")) {
    ::setenv("TRAINYARD_SERVER", absolute_server(server).c_str(), 1);
  }
  if (const char* config = std::getenv("TRAINYARD_CONFIG")) {
    ::setenv("TRAINYARD_CONFIG", absolute_path(config).c_str(), 1);
  }
}

/// Returns the options that named the server, for the commands that contact it.
std::vector<std::string> server_options(const client::ConnectionFlags& flags) {
  std::vector<std::string> words;
  const std::array<std::pair<const char*, std::string>, 6> values = {
      std::pair{"--server", absolute_server(flags.server)},
      std::pair{"--context", flags.context},
      std::pair{"--project", flags.project},
      std::pair{"--config", absolute_path(flags.config_file)},
      std::pair{"--token-file", absolute_path(flags.token_file)},
      std::pair{"--ca-file", absolute_path(flags.ca_file)}};
  for (const auto& [name, value] : values) {
    if (!value.empty()) words.insert(words.end(), {name, value});
  }
  if (flags.plaintext) words.emplace_back("--plaintext");
  return words;
}

volatile std::sig_atomic_t g_interrupted = 0;
extern "C" void on_tutorial_interrupt(int) { g_interrupted = 1; }

/// Makes SIGINT only set a flag, so that even a repeated Ctrl-C does not end this program before it
/// has deleted what it created on the server.
void outlive_interrupts() {
  struct sigaction action {};
  // Without SA_RESTART, so that SIGINT also ends a wait for Enter.
  action.sa_handler = on_tutorial_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
}

class Tutorial {
 public:
  Tutorial(Session& session, bool asks)
      : session_(session), asks_(asks), server_(server_options(session.connection())) {}

  /// Makes further commands run without server options, for a tutorial without a server.
  void forget_server() { server_.clear(); }

  void say(const std::string& text) { session_.out().write("\n" + text + "\n"); }

  /// Shows a command, waits for Enter and runs it in the current folder. Errors: TUTORIAL_FAILED
  /// with the command's exit code; CANCELLED if the user interrupts it or enters q.
  Status run(const std::vector<std::string>& arguments) {
    if (g_interrupted != 0) return stopped();
    std::string line = "$ trainyard";
    for (const std::string& a : arguments) line += " " + shell_word(a);
    for (const std::string& a : server_) line += " " + shell_word(a);
    session_.out().write("\n" + session_.out().styled(Style::kBold, line) + "\n");
    if (asks_) {
      session_.out().write(session_.out().styled(Style::kDim, "  Enter runs it, q ends. "));
      std::string answer;
      if (!read_line(answer) || answer.starts_with('q')) return stopped();
    }
    const int code = spawn(arguments, /*quiet=*/false);
    if (g_interrupted != 0 || code == client::kExitInterrupted) return stopped();
    if (code == client::kExitOk) return {};
    return make_error(ErrorCode::kInternal, "TUTORIAL_FAILED",
                      "the command above ended with exit code " + std::to_string(code));
  }

  /// Runs a command without output that ignores Ctrl-C, and returns its exit code.
  int run_quietly(const std::vector<std::string>& arguments) {
    return spawn(arguments, /*quiet=*/true);
  }

 private:
  int spawn(const std::vector<std::string>& arguments, bool quiet) {
    ProgramRun run{
        .path = "/proc/self/exe", .arguments = {"trainyard"}, .ignores_interrupts = quiet};
    run.arguments.insert(run.arguments.end(), arguments.begin(), arguments.end());
    run.arguments.insert(run.arguments.end(), server_.begin(), server_.end());
    const UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
    if (quiet) run.fds = {.input = -1, .output = null.get(), .errors = null.get()};
    const std::optional<int> status = run_program(run);
    if (!status) return client::kExitFailed;
    return WIFEXITED(*status) ? WEXITSTATUS(*status) : client::kExitInterrupted;
  }

  static Status stopped() {
    return make_error(ErrorCode::kCancelled, "INTERRUPTED", "the tutorial was stopped");
  }

  /// Reads standard input up to a newline; false at the end of input or after Ctrl-C.
  bool read_line(std::string& out) {
    for (char c = 0;;) {
      const ssize_t n = ::read(STDIN_FILENO, &c, 1);
      if (n <= 0) return false;
      if (c == '\n') return true;
      out += c;
    }
  }

  Session& session_;
  bool asks_;
  std::vector<std::string> server_;
};

/// Runs the tutorial without a server: plans, trains and exports with local commands.
Status walk_locally(Tutorial& t) {
  t.forget_server();
  t.say(
      "No server was found, so everything runs in this terminal.\nFirst the plan: layers, memory "
      "and steps, before anything runs. --local uses no server.");
  if (Status s = t.run({"plan", "animals.yaml", "--local"}); !s.ok()) return s;
  t.say(
      "Now train. The line shows the loss (lower is better) and the share of validation rows, "
      "which\nthe model never trains on, that it classifies correctly (val acc). --out keeps the "
      "model.");
  if (Status s = t.run({"local", "run", "animals.yaml", "--out", "run"}); !s.ok()) return s;
  t.say("You can use the model in other programs: as an ONNX file, it runs without Trainyard.");
  if (Status s = t.run({"local", "export", "run/model", "--out", "animals.onnx"}); !s.ok()) {
    return s;
  }
  t.say(
      "A daemon, trainyardd, keeps jobs and models, and lets you watch, plot and predict. Start "
      "one\n"
      "with 'trainyardd --state-dir FOLDER', name it with "
      "TRAINYARD_SERVER=unix:FOLDER/trainyard.sock,"
      "\nand run this tutorial again.");
  return {};
}

/// Its destructor deletes the job, the model and the dataset from the server, however the tutorial
/// ends.
struct ServerTraces {
  Tutorial& tutorial;
  std::string name;
  bool submitted = false;
  ~ServerTraces() {
    if (!submitted) return;
    tutorial.run_quietly({"cancel", name});
    tutorial.run_quietly({"wait", name, "--timeout", "30"});
    tutorial.run_quietly({"model", "delete", name, "--yes"});
    tutorial.run_quietly({"delete", name, "--yes"});
    tutorial.run_quietly({"dataset", "delete", name, "--yes"});
  }
};

/// `has_local`: the engine's program is here, which plans without an upload.
Status walk_with_server(Tutorial& t, const std::string& name, bool has_local) {
  t.say(has_local ? "First the plan: layers, memory, device and time, before anything runs."
                  : "First the plan: layers, memory, device and time, before anything runs. With "
                    "--upload the server plans.");
  // Before the upload, so that the dataset is deleted however the tutorial ends.
  ServerTraces traces{t, name, true};
  std::vector<std::string> plan = {"plan", "animals.yaml"};
  if (!has_local) plan.emplace_back("--upload");
  if (Status s = t.run(plan); !s.ok()) return s;
  t.say(
      "Now submit the job. The server stores the data and runs the job even if you log "
      "out;\n--name gives the job a name.");
  if (Status s = t.run({"submit", "animals.yaml", "--name", name}); !s.ok()) return s;
  t.say(
      "Watch it: the loss (lower is better), and the share of validation rows, which the model "
      "never\ntrains on, that it classifies correctly (val acc). Ctrl-C stops watching, not the "
      "job.");
  if (Status s = t.run({"watch", name}); !s.ok()) return s;
  t.say("The loss, step by step:");
  if (Status s = t.run({"plot", name, "--metric", "loss"}); !s.ok()) return s;
  t.say("What does the model predict for animals that it has never seen? They are in new.csv.");
  if (Status s = t.run({"predict", name, "--csv", "new.csv"}); !s.ok()) return s;
  t.say("You can use the model in other programs: as an ONNX file, it runs without Trainyard.");
  return t.run({"model", "export", name, "--format", "onnx", "--out", "animals.onnx"});
}

Status write_files(const fs::path& folder, const std::string& spec) {
  if (Status s = user_files().create_directories(folder); !s.ok()) return s;
  const std::array<std::pair<const char*, std::string>, 3> files = {
      std::pair{"animals.csv", animals()}, std::pair{"animals.yaml", spec},
      std::pair{"new.csv", std::string(kNewRows)}};
  for (const auto& [name, text] : files) {
    if (Status s = replace_file(user_files(), folder / name, text); !s.ok()) return s;
  }
  return {};
}

Result<int> run_tutorial(Session& session, const TutorialOptions& options) {
  std::error_code ec;
  if (!options.folder.empty() && fs::exists(options.folder, ec) &&
      !fs::is_empty(options.folder, ec)) {
    return usage_error("--folder: " + quoted_value(options.folder) +
                       " exists, expected a new or an empty folder");
  }
  outlive_interrupts();
  make_variables_absolute();
  std::optional<TemporaryFolder> temporary;
  if (options.folder.empty()) temporary.emplace();
  const fs::path folder = fs::absolute(temporary ? temporary->path() : fs::path(options.folder));
  const std::string name = "tutorial-" + std::to_string(::getpid());
  const std::string spec = spec_text(name);
  if (Status s = write_files(folder, spec); !s.ok()) return std::move(s).error();
  Tutorial t(session, can_ask() && session.out().is_terminal() && !options.yes);
  fs::current_path(folder, ec);
  if (ec) {
    return make_error(ErrorCode::kInternal, "TUTORIAL_FAILED",
                      folder.string() + " cannot be entered: " + ec.message());
  }
  t.say(
      "Three minutes with Trainyard: from a table of animals to a model that tells them apart.\n"
      "The files of this tutorial are in " +
      folder.string() +
      ":\nanimals.csv has 300 animals (weight, ears, tail, and which animal it is); animals.yaml "
      "is\n"
      "the job: what to learn from this table, with which model and how:\n\n" +
      spec);
  Status walked;
  if (t.run_quietly({"health"}) == client::kExitOk) {
    walked = walk_with_server(t, name, session.has_local());
  } else if (!session.has_local()) {
    return make_error(
        ErrorCode::kUnavailable, "SERVER_NOT_RUNNING",
        "the tutorial needs a server, which was not found, or the engine's program "
        "trainyard-local, which is in the Debian package and in the tarball; --server "
        "names a server");
  } else {
    walked = walk_locally(t);
  }
  fs::current_path("/", ec);  // so that the temporary folder can be deleted
  const std::string left = temporary ? "Everything that the tutorial created has been deleted; "
                                       "--folder FOLDER keeps its files."
                                     : "Its files are kept in " + folder.string() + ".";
  if (!walked.ok() && walked.error().code == ErrorCode::kCancelled) {
    t.say("Stopped. " + left);
    return static_cast<int>(client::kExitInterrupted);
  }
  if (!walked.ok()) return std::move(walked).error();
  t.say("That was a whole job. " + left +
        "\n\nNext:\n"
        "  trainyard help              all commands; 'trainyard COMMAND --help' describes one\n"
        "  docs/job_spec.md            what a job file can contain: models, recipes, data\n"
        "  docs/datasets.md            tables, images, text and arrays\n"
        "  examples/                   jobs to start from");
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command tutorial_command() {
  auto o = std::make_shared<TutorialOptions>();
  return {"tutorial",
          "Walk through a first job in three minutes",
          {"trainyard tutorial", "trainyard tutorial --folder animals"},
          "Uses a server if one is found, and else trains in the terminal. Shows each command and "
          "waits for Enter\nbefore it runs it. Everything it creates is deleted at the end, except "
          "the files in --folder.",
          [o](OptionSet& options) {
            options.text("--folder", "FOLDER", o->folder,
                         "keep the files here, a new or an empty folder");
            options.flag("-y,--yes", o->yes, "do not wait for Enter");
          },
          [o](Session& session) { return run_tutorial(session, *o); }};
}

}  // namespace trainyard::cli
