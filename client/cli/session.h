// client/cli/session.h: the environment of every command: streams, output format, server
// connection, Ctrl-C.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "client/cli/output.h"
#include "client/cli/progress.h"
#include "client/cli/table.h"
#include "client/cli/terminal.h"
#include "client/lib/client.h"
#include "client/lib/exit_code.h"

namespace trainyard::cli {

/// The options that every command has.
struct GlobalOptions {
  client::ConnectionFlags connection;
  std::string output;  // empty: TRAINYARD_OUTPUT, or else table
  bool no_colour = false;
  bool verbose = false;
  bool help = false;
  double wait_s = 0;  // --timeout of commands that wait for a job; seconds
};

struct LocalWork;  // client/cli/local_work.h

/// The program that runs a command: trainyard or trainyard-local.
struct Program {
  std::vector<std::string> arguments;  // the command line without the program's name
  client::Environment env;
  const LocalWork* local = nullptr;  // null in trainyard
};

class Session {
 public:
  /// Opens a session; refuses an unknown output format. `program` must outlive the session.
  static Result<std::unique_ptr<Session>> open(const GlobalOptions& options,
                                               const Program& program);
  ~Session();

  Terminal& out() { return out_; }
  Terminal& err() { return err_; }
  Format format() const { return format_; }
  /// Returns true if a program reads the output: then stdout must contain nothing else.
  bool machine() const { return format_ != Format::kTable && format_ != Format::kWide; }
  bool verbose() const { return options_.verbose; }
  /// Returns what the command line says about the server.
  const client::ConnectionFlags& connection() const { return options_.connection; }
  const client::Environment& env() const { return program_.env; }
  /// Returns how long to wait for a job, in seconds; 0: no limit.
  double wait_s() const { return options_.wait_s; }

  /// Returns the server, the credentials and the project that options, environment and
  /// configuration choose.
  Result<const client::Connection*> settings();
  /// Converts the name of a resource, as people type it, to its full name.
  Result<std::string> full_name(std::string_view collection, std::string_view text);

  /// Returns the client, which the first call connects.
  Result<client::Client*> client(
      client::Client::NoServer no_server = client::Client::NoServer::kRefuse);

  /// Returns the functions that need the engine. In trainyard, this call replaces the process by
  /// trainyard-local with the same arguments, so nothing may be printed before it. Fails if that
  /// program is missing; `instead` suggests an alternative in the message.
  Result<const LocalWork*> local(std::string_view instead = "");
  /// Returns whether local() would succeed.
  bool has_local() const;

  /// Returns a token whose stop is requested by the first Ctrl-C; the second one ends the program
  /// immediately.
  std::stop_token interrupted();
  /// Gives Ctrl-C its default action again; the next interrupted() returns another token.
  void forget_interrupts();

  /// Prints a response in the chosen format: `table` for people, `names` one per line for -o name.
  void show(const google::protobuf::Message& message, const std::function<std::string()>& table,
            const std::vector<std::string>& names);
  /// Prints a line on stderr, unless the output format is for machines.
  void hint(std::string_view text);
  /// Creates a progress display on `terminal`, which is stderr or stdout.
  Progress progress(const std::string& title, Terminal& terminal) const;

 private:
  Session(const GlobalOptions& options, const Program& program);
  GlobalOptions options_;
  const Program& program_;
  Terminal out_;
  Terminal err_;
  Format format_ = Format::kTable;
  std::optional<client::Connection> settings_;
  std::unique_ptr<client::Client> client_;
  struct Interrupts;
  std::unique_ptr<Interrupts> interrupts_;
};

/// Prints one line with the reason in brackets, the refused fields if there are several, and a
/// suggestion what to do; with a machine format one JSON object. Returns the exit code.
int report_error(const Error& error, Terminal& err, Format format, bool verbose);

}  // namespace trainyard::cli
