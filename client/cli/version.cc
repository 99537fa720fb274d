// trainyard version: prints this program's version; `server status` prints the server's.
#include "client/cli/command.h"

namespace trainyard::cli {

Command version_command() {
  return {"version",
          "Print the version of this program",
          {"trainyard version"},
          "",
          [](OptionSet&) {},
          [](Session& session) -> Result<int> {
            session.out().line(session.machine() && session.format() != Format::kName
                                   ? "{\"version\": \"" TRAINYARD_VERSION "\"}"
                                   : "trainyard " TRAINYARD_VERSION);
            return static_cast<int>(client::kExitOk);
          }};
}

}  // namespace trainyard::cli
