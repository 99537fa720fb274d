#include "tests/client/fake_people.h"

#include "tests/client/fake_answer.h"

namespace trainyard::client {
namespace {

constexpr int64_t kSomeSecond = 1'795'000'000;
constexpr const char* kNewText = "ty_0123456789abcdefghijklmnopqrstuvwxyzABCDEFxxxxxx";

std::string header(const grpc::CallbackServerContext& context, const char* name) {
  const auto found = context.client_metadata().find(name);
  return found == context.client_metadata().end()
             ? ""
             : std::string(found->second.data(), found->second.size());
}

}  // namespace

template <typename Request, typename Fill>
grpc::ServerUnaryReactor* FakePeople::handle(grpc::CallbackServerContext* context,
                                             const char* method, const Request& request,
                                             const Fill& fill) {
  const std::scoped_lock lock(s_.mu);
  std::string call = method;
  if (const std::string text = request.ShortDebugString(); !text.empty()) call += " " + text;
  s_.people_calls.push_back(call);
  if (!s_.people_error.reason.empty()) return answer(context, to_status(s_.people_error));
  fill();
  return answer(context, grpc::Status::OK);
}

grpc::ServerUnaryReactor* FakePeople::WhoAmI(grpc::CallbackServerContext* context,
                                             const v1::WhoAmIRequest* request,
                                             v1::WhoAmIResponse* response) {
  {
    const std::scoped_lock lock(s_.mu);
    const std::string given = header(*context, "authorization");
    if (!s_.token_text.empty() && given != "Bearer " + s_.token_text) {
      s_.people_calls.emplace_back("WhoAmI refused");
      return answer(context, refuse(ErrorCode::kUnauthenticated, "CREDENTIALS_INVALID",
                                    "the token is not known"));
    }
  }
  return handle(context, "WhoAmI", *request, [&] {
    response->set_person(s_.person);
    response->set_server_role(v1::USER);
    response->set_token(s_.token_name);
    v1::Membership& membership = *response->add_memberships();
    membership.set_project("projects/vision");
    membership.set_role(v1::MAINTAINER);
  });
}

grpc::ServerUnaryReactor* FakePeople::ListPeople(grpc::CallbackServerContext* context,
                                                 const v1::ListPeopleRequest* request,
                                                 v1::ListPeopleResponse* response) {
  return handle(context, "ListPeople", *request, [&] {
    // One person per page, so that the client has to ask for further pages.
    const bool first = request->page_token().empty();
    v1::Person& person = *response->add_people();
    person.set_name(first ? "ada" : "ci");
    person.set_server_role(first ? v1::ADMIN : v1::USER);
    person.set_service(!first);
    if (first) response->set_next_page_token("more");
  });
}

grpc::ServerUnaryReactor* FakePeople::SetPerson(grpc::CallbackServerContext* context,
                                                const v1::SetPersonRequest* request,
                                                v1::Person* response) {
  return handle(context, "SetPerson", *request, [&] {
    response->set_name(request->name());
    const bool unchanged = request->server_role() == v1::SERVER_ROLE_UNSPECIFIED;
    response->set_server_role(unchanged ? v1::USER : request->server_role());
    response->set_service(request->service());
  });
}

grpc::ServerUnaryReactor* FakePeople::RemovePerson(grpc::CallbackServerContext* context,
                                                   const v1::RemovePersonRequest* request,
                                                   google::protobuf::Empty*) {
  return handle(context, "RemovePerson", *request, [] {});
}

grpc::ServerUnaryReactor* FakePeople::ListProjects(grpc::CallbackServerContext* context,
                                                   const v1::ListProjectsRequest* request,
                                                   v1::ListProjectsResponse* response) {
  return handle(context, "ListProjects", *request, [&] {
    for (const v1::Project& project : s_.projects) *response->add_projects() = project;
  });
}

grpc::ServerUnaryReactor* FakePeople::CreateProject(grpc::CallbackServerContext* context,
                                                    const v1::CreateProjectRequest* request,
                                                    v1::Project* response) {
  return handle(context, "CreateProject", *request,
                [&] { response->set_name("projects/" + request->project_id()); });
}

grpc::ServerUnaryReactor* FakePeople::SetProjectDevices(grpc::CallbackServerContext* context,
                                                        const v1::SetProjectDevicesRequest* request,
                                                        v1::Project* response) {
  return handle(context, "SetProjectDevices", *request, [&] {
    response->set_name(request->name());
    *response->mutable_devices() = request->devices();
  });
}

grpc::ServerUnaryReactor* FakePeople::DeleteProject(grpc::CallbackServerContext* context,
                                                    const v1::DeleteProjectRequest* request,
                                                    google::protobuf::Empty*) {
  return handle(context, "DeleteProject", *request, [] {});
}

grpc::ServerUnaryReactor* FakePeople::ListMembers(grpc::CallbackServerContext* context,
                                                  const v1::ListMembersRequest* request,
                                                  v1::ListMembersResponse* response) {
  return handle(context, "ListMembers", *request, [&] {
    v1::Member& member = *response->add_members();
    member.set_person("ada");
    member.set_role(v1::MAINTAINER);
  });
}

grpc::ServerUnaryReactor* FakePeople::SetMember(grpc::CallbackServerContext* context,
                                                const v1::SetMemberRequest* request,
                                                v1::Member* response) {
  return handle(context, "SetMember", *request, [&] {
    response->set_person(request->person());
    response->set_role(request->role());
  });
}

grpc::ServerUnaryReactor* FakePeople::CreateToken(grpc::CallbackServerContext* context,
                                                  const v1::CreateTokenRequest* request,
                                                  v1::CreateTokenResponse* response) {
  return handle(context, "CreateToken", *request, [&] {
    v1::Token& token = *response->mutable_token();
    token.set_id("t-0123456789abcdef");
    token.set_name(request->name());
    token.set_person(request->person().empty() ? s_.person : request->person());
    if (!request->never_expires()) token.mutable_expire_time()->set_seconds(kSomeSecond);
    response->set_text(kNewText);
  });
}

grpc::ServerUnaryReactor* FakePeople::RotateToken(grpc::CallbackServerContext* context,
                                                  const v1::RotateTokenRequest* request,
                                                  v1::CreateTokenResponse* response) {
  return handle(context, "RotateToken", *request, [&] {
    response->mutable_token()->set_id(request->id());
    response->set_text(kNewText);
  });
}

grpc::ServerUnaryReactor* FakePeople::RevokeToken(grpc::CallbackServerContext* context,
                                                  const v1::RevokeTokenRequest* request,
                                                  google::protobuf::Empty*) {
  return handle(context, "RevokeToken", *request, [] {});
}

grpc::ServerUnaryReactor* FakePeople::ListTokens(grpc::CallbackServerContext* context,
                                                 const v1::ListTokensRequest* request,
                                                 v1::ListTokensResponse* response) {
  return handle(context, "ListTokens", *request, [&] {
    for (const v1::Token& token : s_.tokens) *response->add_tokens() = token;
  });
}

grpc::ServerUnaryReactor* FakePeople::Share(grpc::CallbackServerContext* context,
                                            const v1::ShareRequest* request,
                                            v1::ShareEntry* response) {
  return handle(context, "Share", *request, [&] {
    response->set_name(request->name());
    response->set_with_project(request->with_project());
  });
}

grpc::ServerUnaryReactor* FakePeople::Unshare(grpc::CallbackServerContext* context,
                                              const v1::ShareRequest* request,
                                              google::protobuf::Empty*) {
  return handle(context, "Unshare", *request, [] {});
}

grpc::ServerUnaryReactor* FakePeople::ListShares(grpc::CallbackServerContext* context,
                                                 const v1::ListSharesRequest* request,
                                                 v1::ListSharesResponse* response) {
  return handle(context, "ListShares", *request, [&] {
    v1::ShareEntry& entry = *response->add_received();
    entry.set_name("projects/other/datasets/digits");
    entry.set_with_project(request->parent());
    entry.set_person("bob");
  });
}

}  // namespace trainyard::client
