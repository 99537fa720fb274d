#include "client/cli/session.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <thread>

#include "client/cli/local_program.h"
#include "client/cli/options.h"
#include "client/cli/relative_name.h"
#include "client/lib/names.h"
#include "src/base/handle.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

// the signal handler writes to this descriptor; -1 without a listener
std::atomic<int> g_signal_pipe = -1;

extern "C" void on_interrupt(int) {
  const int fd = g_signal_pipe;
  if (fd >= 0) {
    const char byte = 1;
    [[maybe_unused]] const ssize_t written = ::write(fd, &byte, 1);
  }
}

struct Advice {
  const char* reason;
  const char* text;
};
constexpr const char* kLogIn =
    "'trainyard login' asks for your token and keeps it; an admin of the server, or you on its "
    "host, "
    "creates one: 'trainyard token create NAME'";
constexpr Advice kAdvice[] = {
    {"SERVER_NOT_RUNNING",
     "start one with 'trainyardd', or name a running one with --server or TRAINYARD_SERVER; "
     "'trainyard local run "
     "SPEC' trains without a server"},
    {"SERVER_UNREACHABLE",
     "is trainyardd running there, and, over TLS, is its certificate trusted by --ca-file or the "
     "system? --server and TRAINYARD_SERVER name another server"},
    {"SERVER_DRAINING", "the server is stopping; try again when it is back"},
    {"JOB_NOT_FOUND", "'trainyard list' shows the jobs"},
    {"DATASET_NOT_FOUND",
     "'trainyard dataset list --all-versions' shows the datasets; 'dataset: {path: ...}' in the "
     "spec "
     "uploads one"},
    {"MODEL_NOT_FOUND",
     "'trainyard model list' shows the models; a job has one once it has SUCCEEDED"},
    {"JOB_EXISTS",
     "'--name NAME' gives another one; without a name in the file the server chooses"},
    {"PROJECT_NOT_FOUND",
     "'trainyard project list' shows the projects that you may see; an admin creates others, and a "
     "maintainer of a project or an admin adds you: 'trainyard project add PROJECT PERSON'"},
    {"UNAUTHENTICATED", kLogIn},
    {"CREDENTIALS_MISSING", kLogIn},
    {"CREDENTIALS_INVALID",
     "'trainyard context show' says where the token came from; 'trainyard login' replaces it"},
    {"CREDENTIALS_EXPIRED",
     "create another token on the server's host, 'trainyard token create NAME', or ask an admin "
     "for "
     "one; 'trainyard login' stores it"},
    {"CREDENTIALS_REVOKED",
     "create another token on the server's host, 'trainyard token create NAME', or ask an admin "
     "for "
     "one; 'trainyard login' stores it"},
    {"PERSON_NOT_FOUND", "'trainyard user list' shows the people that the server knows"},
    {"PERSON_OWNS_RESOURCES", "'--give-to PERSON' says who gets them"},
    {"TOKEN_NOT_FOUND", "'trainyard token list' shows your tokens"},
    {"SHARE_NOT_FOUND", "'trainyard share list' shows what is shared"},
    {"PROJECT_NOT_EMPTY",
     "'trainyard list', 'dataset list' and 'model list' with --project show what it has"},
    {"DEADLINE_EXCEEDED", "--timeout allows more time; the change may nevertheless have been made"},
};

/// Says who gives the role that a call needs: the maintainers of its project, or admins.
std::string role_advice(const Error& error) {
  const auto project = error.metadata.find("project");
  const std::string who = project == error.metadata.end()
                              ? "an admin of the server gives roles on it"
                              : "'trainyard project members " + safe_text(project->second) +
                                    "' shows the maintainers of the project, who give roles in it";
  return "'trainyard whoami' shows your roles; " + who;
}

}  // namespace

/// Turns the first SIGINT into a stop request, and then restores SIGINT's default action.
struct Session::Interrupts {
  std::stop_source source;
  UniqueFd read_end;
  UniqueFd write_end;
  std::jthread listener;

  Interrupts() {
    int fds[2];
    TRAINYARD_CHECK(::pipe(fds) == 0, "a pipe for signals");
    read_end = UniqueFd(fds[0]);
    write_end = UniqueFd(fds[1]);
    g_signal_pipe = write_end.get();
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, &action, nullptr);
    listener = std::jthread([this] {
      char byte = 0;
      if (::read(read_end.get(), &byte, 1) == 1 && byte == 1) source.request_stop();
    });
  }
  ~Interrupts() {
    ::signal(SIGINT, SIG_DFL);
    g_signal_pipe = -1;
    const char byte = 0;  // its value does not matter; it wakes the listener
    [[maybe_unused]] const ssize_t written = ::write(write_end.get(), &byte, 1);
  }
};

Session::Session(const GlobalOptions& options, const Program& program)
    : options_(options),
      program_(program),
      out_(stdout, options.no_colour, program.env),
      err_(stderr, options.no_colour, program.env) {}
Session::~Session() = default;

Result<std::unique_ptr<Session>> Session::open(const GlobalOptions& options,
                                               const Program& program) {
  std::unique_ptr<Session> session(new Session(options, program));
  const std::string text =
      options.output.empty() ? program.env("TRAINYARD_OUTPUT") : options.output;
  if (text.empty()) return session;
  const auto format = find_format(text);
  if (!format) {
    return usage_error("--output: " + quoted_value(text) +
                       " is not known, expected table, wide, json, "
                       "yaml, name or jsonl");
  }
  session->format_ = *format;
  return session;
}

Result<const client::Connection*> Session::settings() {
  if (!settings_) {
    ASSIGN_OR_RETURN(settings_, client::resolve_connection(options_.connection, program_.env));
    set_base_project(settings_->parent());
  }
  return &*settings_;
}

Result<std::string> Session::full_name(std::string_view collection, std::string_view text) {
  ASSIGN_OR_RETURN(const client::Connection* chosen, settings());
  return client::full_name(collection, text, chosen->parent());
}

Result<client::Client*> Session::client(client::Client::NoServer no_server) {
  if (client_ == nullptr) {
    ASSIGN_OR_RETURN(const client::Connection* chosen, settings());
    ASSIGN_OR_RETURN(client_, client::Client::connect(*chosen, no_server));
    if (err_.is_terminal()) {
      client_->on_slow_call([this](bool waiting) {
        err_.write(waiting ? "\rwaiting for the server ...\x1b[K" : "\r\x1b[K");
      });
    }
  }
  return client_.get();
}

Result<const LocalWork*> Session::local(std::string_view instead) {
  if (program_.local != nullptr) return program_.local;
  return exec_local_program(program_.arguments, instead, program_.env);
}

bool Session::has_local() const {
  return program_.local != nullptr || has_local_program(program_.env);
}

std::stop_token Session::interrupted() {
  if (interrupts_ == nullptr) interrupts_ = std::make_unique<Interrupts>();
  return interrupts_->source.get_token();
}

void Session::forget_interrupts() { interrupts_.reset(); }

void Session::show(const google::protobuf::Message& message,
                   const std::function<std::string()>& table,
                   const std::vector<std::string>& names) {
  switch (format_) {
    case Format::kTable:
    case Format::kWide:
    case Format::kCsv:
      out_.write(table());
      return;
    case Format::kJson:
      out_.line(to_json(message, true));
      return;
    case Format::kJsonl:
      out_.line(to_json(message, false));
      return;
    case Format::kYaml:
      out_.line(to_yaml(message));
      return;
    case Format::kName:
      for (const std::string& name : names) out_.line(safe_text(relative_name(name)));
      return;
  }
}

void Session::hint(std::string_view text) {
  if (!err_.is_terminal()) return;
  const bool is_one_line = text.find('\n') == std::string_view::npos;
  err_.write(err_.styled(Style::kDim, wrapped(text, is_one_line ? err_.width() : 0)) + "\n");
}

Progress Session::progress(const std::string& title, Terminal& terminal) const {
  ProgressSink sink;
  sink.live = terminal.is_terminal();
  sink.utf8 = terminal.utf8();
  sink.colour = terminal.colour();
  sink.width = [&terminal] { return terminal.width(); };
  sink.write = [&terminal](std::string_view text) { terminal.write(text); };
  sink.now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  };
  return Progress(title, std::move(sink));
}

int report_error(const Error& error, Terminal& err, Format format, bool verbose) {
  const int code = client::exit_code_of(error);
  if (format == Format::kJson || format == Format::kJsonl || format == Format::kYaml) {
    err.write(error_json(error) + "\n");
    return code;
  }
  err.line(err.styled(Style::kBad, "trainyard:") + " " + safe_text(error.message) + " [" +
           safe_text(error.reason) + "]");
  if (error.violations.size() > 1) {
    for (const FieldViolation& v : error.violations) {
      err.line("  " + safe_text(v.field) + ": " + safe_text(v.description));
    }
  }
  for (const Advice& advice : kAdvice) {
    if (error.reason == advice.reason) err.line(advice.text);
  }
  if (error.reason == "ROLE_REQUIRED") err.line(role_advice(error));
  if (verbose) {
    for (const auto& [key, value] : error.metadata) {
      err.line("  " + safe_text(key) + ": " + safe_text(value));
    }
  }
  return code;
}

}  // namespace trainyard::cli
