// tests/client/fake_people.h: the fake server's service for people. It records each call and
// answers with the settings of FakeState.
#pragma once

#include "tests/client/fake_server.h"
#include "trainyard/v1/people_service.grpc.pb.h"

namespace trainyard::client {

class FakePeople final : public v1::PeopleService::CallbackService {
 public:
  explicit FakePeople(FakeState& state) : s_(state) {}

  grpc::ServerUnaryReactor* WhoAmI(grpc::CallbackServerContext* context,
                                   const v1::WhoAmIRequest* request,
                                   v1::WhoAmIResponse* response) override;
  grpc::ServerUnaryReactor* ListPeople(grpc::CallbackServerContext* context,
                                       const v1::ListPeopleRequest* request,
                                       v1::ListPeopleResponse* response) override;
  grpc::ServerUnaryReactor* SetPerson(grpc::CallbackServerContext* context,
                                      const v1::SetPersonRequest* request,
                                      v1::Person* response) override;
  grpc::ServerUnaryReactor* RemovePerson(grpc::CallbackServerContext* context,
                                         const v1::RemovePersonRequest* request,
                                         google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* ListProjects(grpc::CallbackServerContext* context,
                                         const v1::ListProjectsRequest* request,
                                         v1::ListProjectsResponse* response) override;
  grpc::ServerUnaryReactor* CreateProject(grpc::CallbackServerContext* context,
                                          const v1::CreateProjectRequest* request,
                                          v1::Project* response) override;
  grpc::ServerUnaryReactor* SetProjectDevices(grpc::CallbackServerContext* context,
                                              const v1::SetProjectDevicesRequest* request,
                                              v1::Project* response) override;
  grpc::ServerUnaryReactor* DeleteProject(grpc::CallbackServerContext* context,
                                          const v1::DeleteProjectRequest* request,
                                          google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* ListMembers(grpc::CallbackServerContext* context,
                                        const v1::ListMembersRequest* request,
                                        v1::ListMembersResponse* response) override;
  grpc::ServerUnaryReactor* SetMember(grpc::CallbackServerContext* context,
                                      const v1::SetMemberRequest* request,
                                      v1::Member* response) override;
  grpc::ServerUnaryReactor* CreateToken(grpc::CallbackServerContext* context,
                                        const v1::CreateTokenRequest* request,
                                        v1::CreateTokenResponse* response) override;
  grpc::ServerUnaryReactor* RotateToken(grpc::CallbackServerContext* context,
                                        const v1::RotateTokenRequest* request,
                                        v1::CreateTokenResponse* response) override;
  grpc::ServerUnaryReactor* RevokeToken(grpc::CallbackServerContext* context,
                                        const v1::RevokeTokenRequest* request,
                                        google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* ListTokens(grpc::CallbackServerContext* context,
                                       const v1::ListTokensRequest* request,
                                       v1::ListTokensResponse* response) override;
  grpc::ServerUnaryReactor* Share(grpc::CallbackServerContext* context,
                                  const v1::ShareRequest* request,
                                  v1::ShareEntry* response) override;
  grpc::ServerUnaryReactor* Unshare(grpc::CallbackServerContext* context,
                                    const v1::ShareRequest* request,
                                    google::protobuf::Empty* response) override;
  grpc::ServerUnaryReactor* ListShares(grpc::CallbackServerContext* context,
                                       const v1::ListSharesRequest* request,
                                       v1::ListSharesResponse* response) override;

 private:
  /// Records a call, and calls `fill` unless all calls are refused.
  template <typename Request, typename Fill>
  grpc::ServerUnaryReactor* handle(grpc::CallbackServerContext* context, const char* method,
                                   const Request& request, const Fill& fill);

  FakeState& s_;
};

}  // namespace trainyard::client
