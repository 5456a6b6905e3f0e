from pydantic import BaseModel
from leasehold_handler import run_handler, WorkerRequest, NonEmptyStr


class MyDomainRequest(WorkerRequest):
    asset_upload_type: NonEmptyStr
    bucket: NonEmptyStr
    key: NonEmptyStr


class MyDomainResult(BaseModel):
    is_valid: bool


def _handle(request: MyDomainRequest) -> MyDomainResult:
    # ... domain work ...
    return MyDomainResult(is_valid=True)


def main() -> None:
    run_handler(MyDomainRequest, _handle)


if __name__ == "__main__":
    main()
