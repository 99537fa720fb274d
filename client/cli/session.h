// client/cli/session.h: what every command works with: streams, output format, the server, Ctrl-C.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <memory>
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

/// Options that every command takes.
struct GlobalOptions {
  client::ConnectionFlags connection;
  std::string output;  // empty: TRAINYARD_OUTPUT, then table
  bool no_colour = false;
  bool verbose = false;
  bool help = false;
  double wait_s = 0;  // --timeout of a command that waits for a job
};

struct LocalWork;  // client/cli/local_work.h

/// The program that runs a command: trainyard or trainyard-local.
struct Program {
  std::vector<std::string> arguments;  // as it was called, without its name
  client::Environment env;
  const LocalWork* local = nullptr;  // null in trainyard
};

class Session {
 public:
  /// Refuses an unknown output format. `program` must outlive the session.
  static Result<std::unique_ptr<Session>> open(const GlobalOptions& options,
                                               const Program& program);
  ~Session();

  Terminal& out() { return out_; }
  Terminal& err() { return err_; }
  Format format() const { return format_; }
  /// True if the answer goes to a program: then stdout must contain nothing else.
  bool machine() const { return format_ != Format::kTable && format_ != Format::kWide; }
  bool verbose() const { return options_.verbose; }
  /// As the command line named the server.
  const client::ConnectionFlags& connection() const { return options_.connection; }
  /// How long to wait for a job; 0: no limit.
  double wait_s() const { return options_.wait_s; }

  /// Connects at the first call.
  Result<client::Client*> client(
      client::Client::NoServer no_server = client::Client::NoServer::kRefuse);

  /// What takes the engine. In trainyard this call becomes trainyard-local with the same arguments,
  /// so nothing may be printed before it; it is refused where there is no such program, with
  /// `instead`, another way to the same end.
  Result<const LocalWork*> local(std::string_view instead = "");

  /// Requested by the first Ctrl-C; the second one ends the program at once.
  std::stop_token interrupted();

  /// Prints an answer in the chosen format: `table` for people, `names` one per line for -o name.
  void show(const google::protobuf::Message& message, const std::function<std::string()>& table,
            const std::vector<std::string>& names);
  /// A line on stderr, only if a person reads it.
  void hint(std::string_view text);
  /// A progress display on stderr, or on stdout.
  Progress progress(const std::string& title, Terminal& terminal) const;

 private:
  Session(const GlobalOptions& options, const Program& program);
  GlobalOptions options_;
  const Program& program_;
  Terminal out_;
  Terminal err_;
  Format format_ = Format::kTable;
  std::unique_ptr<client::Client> client_;
  struct Interrupts;
  std::unique_ptr<Interrupts> interrupts_;
};

/// One line with the reason in brackets, the refused fields if there are several, and what to do
/// next; with a machine format one JSON object. Returns the exit code.
int report_error(const Error& error, Terminal& err, Format format, bool verbose);

}  // namespace trainyard::cli
