// trainyard device list: what jobs can run on.
#include <memory>

#include "client/cli/command.h"
#include "client/cli/forecast_view.h"
#include "client/lib/names.h"
#include "src/base/text.h"

namespace trainyard::cli {
namespace {

Result<int> run_device(Session& session, bool forecasts) {
  ASSIGN_OR_RETURN(client::Client * server, session.client());
  ASSIGN_OR_RETURN(const v1::ListDevicesResponse list, server->list_devices(forecasts));
  std::vector<std::string> names;
  for (const v1::Device& device : list.devices()) names.push_back(device.name());
  session.show(
      list,
      [&] {
        if (forecasts) return render_device_forecasts(list, session.out().colour());
        Table table({{"NAME"},
                     {"KIND"},
                     {"MODEL"},
                     {"HEALTH"},
                     {"MEMORY", true},
                     {"USED", true},
                     {"SLOTS", true},
                     {"JOBS"}});
        for (const v1::Device& d : list.devices()) {
          std::string jobs;
          for (const std::string& job : d.jobs())
            jobs += (jobs.empty() ? "" : " ") + std::string(client::short_name(job));
          std::string health = v1::Device::Health_Name(d.health());
          if (!d.reason().empty()) health += " (" + d.reason() + ")";
          table.add(
              {std::string(client::short_name(d.name())), v1::Device::Kind_Name(d.kind()),
               d.model(),
               Cell(health, d.health() == v1::Device::HEALTHY ? Style::kGood : Style::kNotice),
               d.memory_bytes() > 0 ? human_bytes(d.memory_bytes()) : "",
               d.memory_bytes() > 0 ? human_bytes(d.memory_used_bytes()) : "",
               std::to_string(d.slots()), jobs});
        }
        return table.render(session.out().colour()) +
               (list.note().empty() ? "" : safe_text(list.note()) + "\n");
      },
      names);
  return static_cast<int>(client::kExitOk);
}

}  // namespace

Command device_list_command() {
  auto forecasts = std::make_shared<bool>(false);
  return {"device list",
          "List devices, their memory and the jobs on them",
          {"trainyard device list", "trainyard device list --forecasts",
           "trainyard device list -o json"},
          "",
          [forecasts](OptionSet& options) {
            options.flag("--forecasts", *forecasts,
                         "show what forecasts of jobs rest on, and how far they were off");
          },
          [forecasts](Session& session) { return run_device(session, *forecasts); }};
}

}  // namespace trainyard::cli
