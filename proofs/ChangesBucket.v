(** Token bucket under changes and refunds. The model of [src/algorithm/token_bucket.rs] and
    [lua/token_bucket.lua]. *)

From Proofs Require Import Changes.

(** [owed] units, less [credited / rate_window] of one, at the time of the last charge, whose rate is
    [rate_limit] in [rate_window]. *)
Record bucket := Bucket { owed : Z; credited : Z; since : Z; rate_limit : Z; rate_window : Z }.

(** Whether a rate (limit, window) exceeds another. *)
Definition is_faster (a b : Z * Z) : bool := fst b * snd a <? fst a * snd b.

(** The rate since the last charge, and the credit in its units: the faster of the old and the new. *)
Definition rate (q : quota) (s : bucket) : Z * Z * Z :=
  if is_faster (rate_limit s, rate_window s) (limit q, window q)
  then (rate_limit s, rate_window s, credited s)
  else if (rate_limit s =? limit q) && (rate_window s =? window q)
  then (limit q, window q, credited s)
  else (limit q, window q, if rate_window s =? 0 then 0 else credited s * window q / rate_window s).

(** The debt at a time, and its credit in the units of the rate. *)
Definition judge (q : quota) (s : bucket) (now : Z) : Z * Z :=
  let '(l, w, credit) := rate q s in
  let paid := ((now - since s) * l + credit) / w in
  let rest := ((now - since s) * l + credit) mod w in
  if paid <? owed s then (owed s - paid, rest) else (0, 0).

Definition bucket_charge (q : quota) (s : bucket) (now c : Z) : bucket * mark :=
  let '(_, w, _) := rate q s in
  let (d, r) := judge q s now in
  let credit := if w =? window q then r else r * window q / w in
  let debt := Z.min (d + c) (parameter q + limit q) in
  (Bucket debt credit now (limit q) (window q), (now, debt, credit)).

(** The fastest rate that is known: that of the charge, of the last charge, and of now. *)
Definition fastest (r : receipt) (q : quota) (s : bucket) : Z * Z :=
  let faster a b := if is_faster b a then b else a in
  faster (faster (limit (charged_under r), window (charged_under r)) (rate_limit s, rate_window s))
    (limit q, window q).

(** The units of a charge that the refill since then has not paid. Debts are paid in the order in which
    they were made. *)
Definition unpaid (r : receipt) (q : quota) (s : bucket) (now : Z) : Z :=
  let '(time, debt, credit) := left_mark r in
  let (l, w) := fastest r q s in
  let credit := ceiling (credit * w) (window (charged_under r)) in
  Z.max 0 (debt - ceiling (Z.max 0 (now - time) * l + credit) w).

Definition bucket_refund (q : quota) (s : bucket) (now : Z) (r : receipt) (u : Z) : bucket * Z :=
  let (d, rest) := judge q s now in
  let outstanding := Z.max 0 (d - (if 0 <? rest then 1 else 0)) in
  let k := Z.min u (Z.min (unpaid r q s now) outstanding) in
  (Bucket (owed s - k) (credited s) (since s) (rate_limit s) (rate_window s), k).

Definition changing_bucket : limiter := {|
  kept := bucket;
  unused := Bucket 0 0 0 0 0;
  most_free := parameter;
  free_under q s now := Z.max 0 (parameter q - fst (judge q s now));
  charge_under := bucket_charge;
  wait_under q s now c :=
    let '(l, w, _) := rate q s in
    let (d, r) := judge q s now in
    if d <=? parameter q - c then 0 else ceiling ((d - (parameter q - c)) * w - r) l;
  refund_under := bucket_refund
|}.
