(** The promises about changes and refunds. *)

From Proofs Require Import Changes Ring ChangesRing ChangesBucket Carried ChangesFixed ChangesCounter Published.

Definition changing_of (a : algorithm) : limiter :=
  match a with
  | Published.Log => changing_log
  | Buckets _ => changing_buckets
  | Counter => changing_counter
  | Published.Bucket _ => changing_bucket
  | Window => changing_window
  end.

(** What a key says of itself under a quota. See [AllOrNothing.standing]. *)
Definition standing_under (m : limiter) (q : quota) (s : kept m) (now cost : Z) : Z * Z * Z * option Z :=
  let remaining := free_under m q s now in
  if most_free m q <=? remaining then (most_free m q, 0, 0, None)
  else (remaining, wait_under m q s now (remaining + 1), wait_under m q s now (most_free m q),
    if (remaining <? cost) && (cost <=? most_free m q) then Some (wait_under m q s now cost) else None).

(** A check of one charge: the state and the mark, if it is admitted. *)
Definition try_charge (m : limiter) (q : quota) (s : kept m) (now c : Z) : option (kept m * mark) :=
  if (0 <? c) && (c <=? free_under m q s now) then Some (charge_under m q s now c) else None.
